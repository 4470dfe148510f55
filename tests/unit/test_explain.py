"""Lines of engines' logs, explained: published ones from `data/engine_lines.json`, wrong ones, unknown ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvtally.core.decoder import Decoder, Layer
from kvtally.core.errors import InputError
from kvtally.core.mixer import Attention
from kvtally.core.recurrent_mixer import Recurrent
from kvtally.pure.described import read_described
from kvtally.pure.engine_llama_cpp import LlamaCppRules, lines
from kvtally.pure.engine_parts import Asked
from kvtally.pure.explain import FORMS, explain, explain_all, nearest
from kvtally.pure.size import cache_types

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "engine_lines.json").read_text())


def attends(**more: Any) -> Attention:
    return Attention(**{"num_heads": 8, "num_kv_heads": 8, "head_dim": 128} | more)


def of(*mixers: Any) -> Decoder:
    return Decoder(hidden_size=64, vocab_size=0, layers=tuple(Layer(mixer=mixer) for mixer in mixers))


LLAMA = of(*(attends(),) * 32)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model']}, {row['source'][8:]}")
def test_published(row: dict[str, Any]) -> None:
    found = explain_all("\n".join(row["lines"]), read_described(row["decoder"]), **row.get("options", {}))
    assert [one.status for one in found] == row["status"]
    for one, line in zip(found, row["lines"], strict=True):
        assert one.line == line and one.arithmetic and one.agrees == (one.status != "differs")
        if one.status == "exact":
            assert one.printed == one.computed


@pytest.mark.parametrize("name", FORMS)
def test_every_example_is_of_its_own_form(name: str) -> None:
    import re

    example = FORMS[name][1]
    assert [other for other, (pattern, _, _) in FORMS.items() if re.search(pattern, example)] == [name]
    assert nearest(example)[0] == example


def test_own_lines() -> None:
    """What `engine_llama_cpp` says that llama.cpp prints is explained as exact, line by line."""
    net = Recurrent(conv_channels=640, conv_kernel=4, num_heads=6, key_dim=64, value_dim=96)
    decoder = of(attends(), attends(window=300), attends(window=300), net, attends(num_kv_heads=2, num_heads=4))
    asked = Asked(tokens=5000, batch=3, types=cache_types("q8_0", v_dtype="q4_0"))
    printed = list(lines(decoder, asked, LlamaCppRules()))
    found = explain_all("\n".join(printed), decoder)
    assert len(found) == 3 and [one.status for one in found] == ["exact"] * 3
    assert ["see everything" in found[0].quantity, "sliding" in found[1].quantity] == [True, True]


def test_a_hybrid_read_as_if_every_layer_attended() -> None:
    """The line of a model with 16 of 64 layers, asked of a model where all 64 attend: four times as much."""
    line = (
        "llama_kv_cache: size = 16384.00 MiB (262144 cells, 16 layers, 4/1 seqs), K (f16): 8192.00 MiB, "
        "V (f16): 8192.00 MiB"
    )
    wide = Attention(num_heads=4, num_kv_heads=4, head_dim=256)
    assert explain(line, of(*(wide,) * 16)).status == "exact"
    found = explain(line, of(*(wide,) * 64))
    assert found.status == "differs" and found.computed.startswith("65536.00 MiB")
    assert "0.25 times what is computed" in found.notes
    assert "the line counts 16 layers, the model has 64 that keep K and V" in found.notes


def test_the_same_size_of_other_layers_is_chance() -> None:
    """16 layers of 16 heads and 32 layers of 8 take the same; the line counts its layers."""
    line = FORMS["llama.cpp cache"][1]
    assert explain(line, of(*(attends(num_heads=16, num_kv_heads=16),) * 16)).status == "exact"
    found = explain(line, LLAMA)
    assert found.status == "differs" and found.printed == found.computed
    assert found.notes[-1] == (
        "the size is the same by chance: the line counts 16 layers, the model has 32 that keep K and V"
    )


def test_layers_without_attention_may_be_counted() -> None:
    decoder = of(attends(), None, attends())
    printed = list(lines(decoder, Asked(tokens=300, types=cache_types("fp16")), LlamaCppRules()))
    assert "3 layers" in printed[0] and explain(printed[0], decoder).status == "exact"
    assert explain(printed[0].replace("3 layers", "2 layers"), decoder).status == "exact"
    assert explain(printed[0].replace("3 layers", "4 layers"), decoder).status == "differs"
    net = Recurrent(conv_channels=640, conv_kernel=4, num_heads=6, key_dim=64, value_dim=96)
    assert explain(printed[0], of(attends(), net, attends())).status == "differs"


def test_another_number_of_heads_is_said_a_cell() -> None:
    line = (
        "llama_kv_cache: size = 256.00 MiB ( 2048 cells, 32 layers, 1/1 seqs), K (f16): 128.00 MiB, V (f16): 128.00 MiB"
    )
    assert explain(line, LLAMA).status == "exact"
    found = explain(line, of(*(attends(num_kv_heads=2),) * 32))
    assert found.status == "differs"
    assert "the line gives 4,096.0 bytes a cell and layer, the model 1,024.0" in found.notes


def test_differs_says_by_how_much_and_why() -> None:
    text = "Available KV cache memory: 8.11 GiB\nGPU KV cache size: 178,880 tokens"
    found = explain_all(text, of(*(attends(num_heads=4, num_kv_heads=4),) * 94), tensor_parallel=4)[1]
    assert found.computed == "180,816 tokens to 181,040 tokens"
    assert found.notes[-1].startswith("1.2% less than computed: the fewest blocks of all devices count")


def test_memory_makes_tokens_exact() -> None:
    """16 tokens x 32 layers x 2 x 8 x 128 x 2 bytes = 2 MiB a block; 100 blocks and a half."""
    found = explain("GPU KV cache size: 1,600 tokens", LLAMA, memory=201 * 2**20)
    assert (found.status, found.computed) == ("exact", "1,600 tokens")
    assert explain("GPU KV cache size: 1,616 tokens", LLAMA, memory=201 * 2**20).status == "differs"
    assert explain("GPU KV cache size: 1,601 tokens", LLAMA).computed == "no number of blocks gives it"


def test_no_block_on_the_cpu_fits_any_swap_space() -> None:
    """4 GiB of swap space // 2 MiB a block = 2,048 blocks; a server without it prints 0."""
    status = {cpu: explain(f"# GPU blocks: 10, # CPU blocks: {cpu}", LLAMA).status for cpu in (0, 1, 2048)}
    assert status == {0: "consistent", 1: "differs", 2048: "exact"}


def test_swap_space_of_another_size_is_named() -> None:
    found = explain("# GPU blocks: 10, # CPU blocks: 1024", LLAMA)
    assert found.status == "differs"
    assert found.notes[1] == "CPU blocks: 0.50 times what is computed; swap space of 2.00 GiB gives them"


def test_old_line_without_tokens_says_which_cells() -> None:
    found = explain(
        "KV self size = 9.00 MiB, K (f16): 4.50 MiB, V (f16): 4.50 MiB",
        of(*(attends(num_heads=12, num_kv_heads=12, head_dim=32),) * 12),
    )
    assert found.status == "consistent" and "512 to 512 give what it prints" in found.notes[0]


@pytest.mark.parametrize("text", ["", "hello", "GPU KV cache size: many tokens", "llama_kv_cache: size = x"])
def test_unknown_lines_show_the_three_nearest(text: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(text, LLAMA)
    shown = [example for _, example, _ in FORMS.values() if example in str(caught.value)]
    assert len(shown) == 3
    if text:
        assert nearest(text)[0].split()[0] == text.split(maxsplit=1)[0] or text == "hello"


def test_too_long() -> None:
    with pytest.raises(InputError, match="some lines of a log"):
        explain("x" * 100_001, LLAMA)


def test_recurrent_memory_counts_all_layers() -> None:
    net = Recurrent(conv_channels=640, conv_kernel=4, num_heads=6, key_dim=64, value_dim=96)
    decoder = of(net, attends(), net)
    _, line = lines(decoder, Asked(tokens=300, types=cache_types("fp16")), LlamaCppRules())
    assert explain(line, decoder).status == "exact"
    found = explain(line.replace("3 layers", "99 layers"), decoder)
    assert found.status == "differs"
    assert found.notes == ("the size is the same by chance: the line counts 99 layers, the model has 3",)
    assert explain(line, of(net, net, net)).notes == ("32.4% less than computed",)  # 0.30 MiB against 0.4439


TOKENS, CACHE, POOL = (FORMS[name][1] for name in ("vLLM tokens", "llama.cpp cache", "SGLang pool"))


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (TOKENS, {"foo": 1}, "`foo` is no choice of vllm; known: `block_size`, `max_batched_tokens`"),
        (POOL, {"nonsense": 3}, "`nonsense` is no choice of vllm; known: `block_size`"),
        (TOKENS, {"hybrid": "no"}, "`hybrid` is 'no', expected True or False"),
        (POOL, {"mamba_blocks": 2}, "`mamba_blocks` is a choice of vLLM, and no line is one of vLLM's"),
        (POOL, {"block_size": 0}, "`block_size` is 0, expected an integer of at least 1"),
        (CACHE, {"block_size": 16}, "`block_size` is 16, and llama.cpp has no pages"),
        (CACHE, {"tensor_parallel": 8}, "`tensor_parallel` is 8, expected 1: llama.cpp splits models by layers"),
        (f"{TOKENS}\n{CACHE}", {"tensor_parallel": 2}, "`tensor_parallel` is 2, expected 1: llama.cpp splits"),
        (TOKENS, {"tokens": "many"}, "`tokens` is 'many', expected an integer of at least 1"),
        (TOKENS, {"memory": -1}, "`memory` is -1, expected an integer of at least 1"),
    ],
)
def test_an_option_that_no_line_takes_is_refused(text: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(text, LLAMA, **options)
    assert says in str(caught.value)


def test_a_choice_of_vllm_is_for_its_lines_alone() -> None:
    found = explain_all(f"{POOL}\n{TOKENS}", LLAMA, hybrid=False, block_size=32, tensor_parallel=2)
    assert [one.engine for one in found] == ["SGLang", "vLLM"]


def test_a_model_without_keys() -> None:
    net = Recurrent(conv_channels=640, conv_kernel=4, num_heads=6, key_dim=64, value_dim=96)
    with pytest.raises(InputError, match="no layer of the model keeps K and V"):
        explain("KV self size = 9.00 MiB", of(net))
