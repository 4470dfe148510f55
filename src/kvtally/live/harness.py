"""Run passes on a model and leave it as it was found."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from kvtally.core.errors import InputError
from kvtally.core.passes import Pass
from kvtally.live.own_caches import own_cache
from kvtally.live.refusal import refused

SEED = 20240607  # of the token ids, the encoder outputs and the random weights: the same in every run

TINY = 2**22  # parameters
CACHE_KEYWORDS = ("cache", "past_key_values", "state")  # transformers from 5.24 on, before, and RWKV
IMAGES = "cross_attention_states"  # given with the first pass only, and kept beside the text's K and V
ENCODER_KEYWORDS = ("encoder_hidden_states", "encoder_outputs", IMAGES)
WHOLE_TEXT = frozenset({"cpmant"})  # given all ids in every pass, `prompt_length` learned tokens put before them
CODEBOOKS = frozenset({"musicgen_decoder", "musicgen_melody_decoder"})  # read a row of ids for each codebook
UNRUN = "transformers does not run this model on the meta device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How a model is called; `convention` reads it off a transformers model, others write their own.

    `fresh()` gives an empty cache. `call(cache, ids, p)` runs one pass over token ids of shape
    (1, p.new) and returns its logits; `cache` is None where `p` neither reads nor keeps K and V.
    `ids(n)` gives the n token ids that are fed, always the same. `parts(cache)` gives the caches to
    observe, each with `update(keys, values, layer) -> (keys, values)`, the second of two the one for
    cross attention. `keeps_logits` says whether `call` makes `p.logits` rows of logits only, or all,
    `caches` whether the model takes a cache at all: without one only passes that keep nothing run.
    `encoded(begins)` is what an encoder has given, by keyword, to sequences that begin with these token ids: another
    text for each id. `call` takes it for id 0 unless it is told `begins`.
    """

    fresh: Callable[[], Any]
    call: Callable[..., Any]
    ids: Callable[[int], Any]
    parts: Callable[[Any], tuple[Any, ...]] = lambda cache: (cache,)
    keeps_logits: bool = True
    caches: bool = True
    encoded: Callable[[Sequence[int]], Mapping[str, Any]] = lambda _begins: {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A single pass that is ready to run: `run()` returns its logits, `cache` is what it goes on from."""

    asked: Pass
    cache: Any
    run: Callable[[], Any]


def run(model: Any, passes: Iterable[Pass], *, calls: Convention | None = None, source: int | None = None) -> list[Any]:
    """The logits of each single pass, a tensor (1, rows, vocab_size) each: the passes run, nothing watched.

    Teacher-forced on fixed token ids, in evaluation mode, without gradients. `source` is the length
    of the encoder output that an encoder-decoder attends to. Past tokens that no pass before has
    cached are run first, unseen. The model is left as it was found.

    >>> llama = dict(model_type="llama", hidden_size=8, num_attention_heads=2, num_hidden_layers=1,
    ...              intermediate_size=12, vocab_size=19)
    >>> [tuple(logits.shape) for logits in run(build(llama), [Pass(new=3), Pass(new=1, past=3)])]
    [(1, 1, 19), (1, 1, 19)]
    """
    with as_found(model):
        calls = convention(model, source=source) if calls is None else calls
        return [step.run() for step in steps(calls, passes)]


def as_run(model: Any, passes: Iterable[Pass], *, calls: Convention | None = None) -> tuple[Pass, ...]:
    """The passes with the rows of logits that this model really makes: for asking a formula the same question.

    A model whose forward has no `logits_to_keep` makes a row for every new token in every pass.
    """
    calls = convention(model, source=1 if model.config.is_encoder_decoder else None) if calls is None else calls
    if calls.keeps_logits:
        return tuple(passes)
    return tuple(replace(p, logits=p.new) for many in passes for p in ((many,) if many.keep else many.each()))


def steps(calls: Convention, passes: Iterable[Pass]) -> Iterator[Step]:
    """The single passes in order, each with a cache that holds exactly its past.

    A pass that goes on where the one before ended gets the same cache. Any other past is computed
    again into a fresh cache before the step is handed out: cutting a cache back is wrong where a
    window has dropped what is needed again.
    """
    singles = [single for many in passes for single in many.each()]
    for p in singles:
        if p.attending is not None:
            raise InputError(
                f"`attending` is {p.attending}: only {p.attending} of {p.new} rows would attend, expected None on "
                "a real model, where all rows do",
                hint='use loop="forward", which is what frameworks do',
            )
    ids = calls.ids(max((p.past + p.new for p in singles), default=1))
    cache, held = None, 0
    for p in singles:
        if p.past != held or cache is None:
            cache, held = (calls.fresh() if p.keep or p.past else None), p.past
            if p.past:
                calls.call(cache, ids[:, : p.past], Pass(new=p.past))
        yield Step(asked=p, cache=cache, run=_once(calls, cache, ids[:, p.past : p.past + p.new], p))
        cache, held = (cache, p.past + p.new) if p.keep else (None, 0)


def _once(calls: Convention, cache: Any, ids: Any, p: Pass) -> Callable[[], Any]:
    return lambda: calls.call(cache, ids, p)


@contextmanager
def as_found(model: Any) -> Iterator[None]:
    """Evaluation mode without gradients inside; training flags, gradients and random state as before after it.

    A tiny model runs on one thread: several only wait for each other, the longer the busier the machine is.
    """
    training = {module: module.training for module in model.modules()}
    threads = torch.get_num_threads()
    with torch.random.fork_rng(), torch.no_grad():
        try:
            model.eval()
            if sum(p.numel() for p in model.parameters()) < TINY:
                torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)
            for module, flag in training.items():
                module.training = flag


def token_ids(vocab_size: int, special: Iterable[int] = (), device: Any = "cpu") -> Callable[[int], Any]:
    """A function that gives n random token ids of shape (1, n), the same ones always, none of them special.

    >>> token_ids(3, special=[0, 2])(4).tolist()
    [[1, 1, 1, 1]]
    """
    usual = torch.tensor(sorted(set(range(vocab_size)) - set(special)))
    if not len(usual):
        raise InputError(f"`vocab_size` is {vocab_size} and every token is special, expected an ordinary one")

    def ids(n: int) -> Any:
        chosen = torch.randint(len(usual), (1, n), generator=torch.Generator().manual_seed(SEED))
        return usual[chosen].to(device)

    return ids


def convention(model: Any, *, source: int | None = None) -> Convention:
    """How this transformers model is called: the keyword of its cache, rows of logits, encoder outputs.

    Decided once, from the signature of its forward and its config. `source` is the length of the
    encoder output (random numbers of the right shape; the encoder itself is not run), for an
    encoder-decoder and for a decoder alone that has attention to one.
    On the meta device a pass without a cache gets an empty one: without any transformers looks at the
    values of the positions, which that device lacks. It changes no product and is thrown away.
    """
    takes = inspect.signature(model.forward).parameters
    keyword = next((name for name in CACHE_KEYWORDS if name in takes), None)
    if keyword is None and "input_ids" not in takes:
        raise _takes_no_cache(model, takes)
    fixed = _encoder_outputs(model, source, takes)
    decoder = model.config.get_text_config(decoder=True)
    two = bool(fixed) and IMAGES not in fixed
    own = own_cache(model)
    some = token_ids(decoder.vocab_size, special_tokens(model.config, decoder), model.device)

    def fresh() -> Any:
        if keyword is None:
            raise _takes_no_cache(model, takes)
        return own() if own else _fresh_cache(decoder, two=two)

    def encoded(begins: Sequence[int]) -> dict[str, Any]:
        return {name: _for_rows(name, shape, begins, model) for name, shape in fixed.items()}

    return Convention(
        fresh=fresh,
        call=_caller(model, keyword, fresh, encoded, some),
        ids=lambda n: some(n).repeat(codebooks(decoder), 1),
        parts=_self_and_cross if two else lambda cache: (cache,) if hasattr(cache, "update") else (),
        keeps_logits="logits_to_keep" in takes,
        caches=keyword is not None,
        encoded=encoded,
    )


def _caller(
    model: Any, keyword: str | None, fresh: Callable[[], Any], encoded: Callable[..., Any], some: Callable[[int], Any]
) -> Callable[..., Any]:
    """What runs one pass: each thing it is given under the name that this model's forward has for it."""
    decoder, both = model.config.get_text_config(decoder=True), model.config.is_encoder_decoder
    inputs = "decoder_input_ids" if both else "input_ids"
    keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters

    def call(cache: Any, ids: Any, p: Pass, *, begins: Sequence[int] = (), **more: Any) -> Any:
        given = some(p.past + p.new - decoder.prompt_length) if decoder.model_type in WHOLE_TEXT else ids
        rows = {"logits_to_keep": _last_rows(ids if p.past else given, p.logits)} if keeps_logits else {}
        used = fresh() if keyword and cache is None and model.device.type == "meta" else cache
        held = {} if keyword is None or used is None else {keyword: used}
        seen = encoded(begins or [0] * (ids.shape[0] // codebooks(decoder)))
        read = _images(seen[IMAGES], ids, p) if IMAGES in seen else seen
        return model(**{inputs: given}, **read, **held, **rows, **more, use_cache=used is not None).logits

    return call


def codebooks(decoder: Any) -> int:
    """How many rows of ids the decoder of this config reads for one text."""
    return int(decoder.num_codebooks) if decoder.model_type in CODEBOOKS else 1


def _takes_no_cache(model: Any, takes: Iterable[str]) -> InputError:
    return InputError(
        f"{type(model).__name__}.forward takes {', '.join(takes)}, expected a cache: "
        + " or ".join(f"`{name}`" for name in CACHE_KEYWORDS),
        hint="say how this model is called with calls=kvtally.live.Convention(...)",
    )


def copies_kept(model: Any) -> int:
    """How many copies of K and V this model's cache keeps, where a formula counts one.

    1, but for Falcon of the newer architecture: transformers repeats K and V for each query head of a
    group and caches all of them (128 heads for Falcon-40B; engines keep its 8).
    """
    config = model.config
    if config.model_type != "falcon" or not config.new_decoder_architecture:
        return 1
    return int(config.num_attention_heads // config.num_kv_heads)


def _last_rows(ids: Any, rows: int) -> Any:
    """The index of the last `rows` positions. A number would do for some: but 0 means all of them, and 1 lets
    Gemma 4 leave all other rows out of the layers that share K and V, which is another pass than was asked for."""
    return torch.arange(ids.shape[-1] - rows, ids.shape[-1], device=ids.device)


def special_tokens(*configs: Any) -> set[int]:
    """Every id that a config calls a special token."""
    found: set[int] = set()
    for config in configs:
        for name, value in config.to_dict().items():
            if name.endswith(("_token_id", "_token_ids", "_token_index")) and value is not None:
                found |= set(value) if isinstance(value, list) else {value}
    return found


def _fresh_cache(config: Any, *, two: bool) -> Any:
    """An empty dynamic cache; where there is attention to an encoder one for each attention.

    The layers of those two are made as they are written: some configs give the number of the
    encoder's layers for them.
    """
    from transformers import DynamicCache, EncoderDecoderCache

    return EncoderDecoderCache(DynamicCache(), DynamicCache()) if two else DynamicCache(config=config)


def _self_and_cross(cache: Any) -> tuple[Any, Any]:
    return cache.self_attention_cache, cache.cross_attention_cache


def _encoder_outputs(model: Any, source: int | None, takes: Iterable[str]) -> dict[str, tuple[int, int]]:
    """What the model is given of an encoder, keyword and shape; nothing for a decoder alone without `source`."""
    if source is None and not model.config.is_encoder_decoder:
        return {}
    if source is None:
        raise InputError(
            f"{type(model).__name__} attends to an encoder and `source` is None, expected the encoder's length",
            hint="pass source=, the number of positions of the encoder's output",
        )
    keyword = next((name for name in ENCODER_KEYWORDS if name in takes), None)
    if keyword is None:
        raise InputError(
            f"`source` is {source} and {type(model).__name__}.forward takes {', '.join(takes)}, expected what an "
            "encoder gives: " + " or ".join(f"`{name}`" for name in ENCODER_KEYWORDS),
            hint="leave `source` out",
        )
    return {keyword: (source, model.config.get_text_config(decoder=True).hidden_size)}


def _for_rows(keyword: str, shape: tuple[int, int], begins: Sequence[int], model: Any) -> Any:
    """What an encoder gives to each sequence, random numbers by its first token, in the type of now."""
    from transformers.modeling_outputs import BaseModelOutput

    each = {b: torch.randn(shape, generator=torch.Generator().manual_seed(SEED + b)) for b in set(begins)}
    numbers = torch.stack([each[b] for b in begins]).to(dtype=model.dtype, device=model.device)
    return BaseModelOutput(last_hidden_state=numbers) if keyword == "encoder_outputs" else numbers


def _images(given: Any, ids: Any, p: Pass) -> dict[str, Any]:
    """Images in the words of Mllama: with the first pass only, seen by every row (without a mask: a causal one)."""
    mask = torch.zeros((ids.shape[0], 1, ids.shape[1], given.shape[1]), dtype=given.dtype, device=given.device)
    return {"cross_attention_mask": mask} | ({} if p.past else {IMAGES: given})


def build(
    config: Any,
    *,
    device: str = "meta",
    dtype: str | None = None,
    attention: str | None = None,
    experts: str | None = None,
) -> Any:
    """The transformers model that a config describes, in evaluation mode: shapes alone on the meta device.

    `config` is a transformers config or its dictionary (`config.json`). Anywhere but on `"meta"` the
    weights are random, the same in every run. `attention` and `experts` name an implementation
    (`"sdpa"`, `"eager"`; `"grouped_mm"`, `"batched_mm"`, `"eager"`), None takes the one that transformers
    prefers, except that experts on the meta device are `"batched_mm"`, the one that knows its shapes
    there in every dtype. `dtype` None takes the config's. Quantized weights are built as plain ones of
    `dtype`. Remote code is never run.
    """
    make, settings = _maker(configured(config) if isinstance(config, Mapping) else copy.deepcopy(config))
    chosen = {"attn_implementation": attention, "experts_implementation": experts, "dtype": dtype}
    with refused(f"transformers does not build this {settings.model_type}"), torch.random.fork_rng():
        torch.manual_seed(SEED)
        with torch.device(device):
            model = make(settings, **{name: value for name, value in chosen.items() if value is not None})
    if experts is None and device == "meta" and model._can_set_experts_implementation():
        model.set_experts_implementation("batched_mm")
    return model.eval()


def _maker(settings: Any) -> tuple[Callable[..., Any], Any]:
    """What builds the model, and from what: the decoder's config where no class takes all of it (MusicGen)."""
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForMultimodalLM,
        AutoModelForSeq2SeqLM,
        AutoModelForSpeechSeq2Seq,
    )
    from transformers.models.auto import modeling_auto

    both, known = settings.is_encoder_decoder, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING
    if both and type(settings) in modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING:
        return AutoModelForSpeechSeq2Seq.from_config, settings
    if both and type(settings) in modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return AutoModelForSeq2SeqLM.from_config, settings
    if type(settings) not in known:
        if not both and type(settings) in modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING:
            return AutoModelForMultimodalLM.from_config, settings
        raise InputError(
            f"`model_type` is `{settings.model_type}`, expected one that transformers has a language model for",
            hint="an encoder has none, and no cache; build one of your own and say how it is called with "
            "calls=kvtally.live.Convention(...)",
        )
    if both:
        return known[type(settings)]._from_config, settings.get_text_config(decoder=True)
    return AutoModelForCausalLM.from_config, settings


def configured(settings: Mapping[str, Any]) -> Any:
    """The config object for a dictionary, without what would load or run something else."""
    from transformers import CONFIG_MAPPING, AutoConfig

    name = settings.get("model_type")
    if not isinstance(name, str) or name not in CONFIG_MAPPING:
        raise InputError(
            f"`model_type` is {name!r}, expected one that this transformers knows",
            hint="upgrade transformers, or build the model yourself",
        )
    left = ("auto_map", "quantization_config")
    with refused(f"transformers does not build this {name}"):
        return AutoConfig.for_model(**{k: v for k, v in settings.items() if k not in left})
