"""Logs and exports that carry tokens or messages: the same prompts give the same blocks, whoever wrote them down."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from kvtally.core.errors import InputError
from kvtally.traffic.read import read
from kvtally.traffic.read_spans import _attributes, _flat
from kvtally.traffic.read_text import bare
from kvtally.traffic.requests import Requests

Record = dict[str, Any]
SYSTEM, HI, THERE = (
    {"role": role, "content": said} for role, said in (("system", "be good"), ("user", "hi"), ("user", "there"))
)


def written(folder: Path, *records: object, name: str = "trace.jsonl") -> str:
    (folder / name).write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records))
    return str(folder / name)


def paths(requests: Requests) -> list[list[int]]:
    return [requests.path(r).tolist() for r in range(len(requests))]


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: n for n, word in enumerate(["?", "system", "user", "be", "good", "hi", "there"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return str(tmp_path / "tokenizer.json")


def iso(n: int) -> str:
    return f"1970-01-01T00:00:{n:02}Z"


def otlp(n: int, attributes: Record) -> Record:
    def value(one: object) -> Record:
        if isinstance(one, list):
            return {"arrayValue": {"values": [value(each) for each in one]}}
        if isinstance(one, dict):
            return {"kvlistValue": {"values": [{"key": k, "value": value(v)} for k, v in one.items()]}}
        return {"stringValue": one}

    listed = [{"key": key, "value": value(one)} for key, one in attributes.items()]
    other = {"startTimeUnixNano": "1", "attributes": []}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [other, {**other, "startTimeUnixNano": str(n * 10**9),
                                                                "attributes": listed}]}]}]}  # fmt: skip


def flat(prefix: str, messages: tuple[Record, ...], between: str = "") -> Record:
    return {f"{prefix}.{n}.{between}{key}": one[key] for n, one in enumerate(messages) for key in one}


def one_request(form: str, n: int, *messages: Record) -> Record:
    """The same request as each tool writes it."""
    listed = [*messages]
    blocks = [{**one, "content": [{"type": "text", "text": one["content"], "cache_control": {"type": "ephemeral"}}]}
              for one in messages]  # fmt: skip
    gen_ai = {"gen_ai.input.messages": json.dumps(messages), "gen_ai.conversation.id": "c"}
    span = {"name": "chat", "start_time": iso(n), "context": {"trace_id": "t"}}
    inference = {"session.id": "c", "llm.model_name": "m"}
    nested = {"session": {"id": "c"}, "llm": {"input_messages": [{"message": one} for one in messages]}}
    seen = {"id": str(n), "traceId": "c", "type": "GENERATION", "startTime": iso(n)}
    finish = "".join(f"{one['role']}\\n{one['content']}\\n" for one in messages)
    forms: dict[str, Record | str] = {
        "chat": {"messages": listed, "timestamp": n, "session_id": "c"},
        "anthropic": {"messages": blocks[1:], "system": "system\nbe good\n", "timestamp": n, "session_id": "c"},
        "batch": {"custom_id": str(n), "body": {"messages": listed}, "timestamp": n, "session_id": "c"},
        "responses": {"body": {"input": listed}, "created_at": n, "session_id": "c"},
        "litellm": {"id": "x", "trace_id": "c", "startTime": n, "messages": listed, "prompt_tokens": 4},
        "litellm text": {"id": "x", "trace_id": "c", "startTime": n, "messages": json.dumps(messages)},
        "langfuse": {**seen, "input": listed, "usageDetails": {"input": 5, "output": 2}},
        "langfuse dict": {**seen, "input": {"messages": listed}},
        "langfuse trace": {"trace": {"id": "c"}, "observations": [{**seen, "type": "SPAN", "input": "x"},
                                                                   {**seen, "input": listed}]},
        "gen_ai": {"timestamp": n, "attributes": gen_ai},
        "gen_ai otlp": otlp(n, gen_ai),
        "gen_ai structured": otlp(n, {**gen_ai, "gen_ai.input.messages": listed}),
        "openllmetry": otlp(n, {**flat("gen_ai.prompt", messages), "session.id": "c"}),
        "openinference": otlp(n, {**flat("llm.input_messages", messages, "message."), **inference}),
        "openinference nested": {**span, "attributes": nested},
        "openinference columns": {"start_time": iso(n), "attributes.session.id": "c", "attributes.llm.input_messages":
                                  [{f"message.{key}": one[key] for key in one} for one in messages]},
        "sglang": f"[1970-01-01 00:00:{n:02} TP0] Finish: obj=GenerateReqInput(rid='r', text='{finish}', input_ids="
                  f"None), out={{'text': ' x', 'meta_info': {{'completion_tokens': 3}}}}\n",
    }  # fmt: skip
    found = forms[form]
    return found if isinstance(found, dict) else {"line": found}


FORMS = [
    "chat", "anthropic", "batch", "responses", "litellm", "litellm text", "langfuse", "langfuse dict",
    "langfuse trace", "gen_ai", "gen_ai otlp", "gen_ai structured", "openllmetry", "openinference",
    "openinference nested", "openinference columns", "sglang",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_same_requests_whoever_wrote_them_down(tmp_path: Path, tokenizer: str, form: str) -> None:
    two = [one_request(form, 1, SYSTEM, HI), one_request(form, 2, SYSTEM, THERE)]
    name = written(tmp_path, *(one.get("line", one) for one in two), name=f"t.{'log' if form == 'sglang' else 'jsonl'}")
    found = read([name], tokenizer=tokenizer, block_size=3)
    assert paths(found) == [[0], [0]]  # system be good | user hi; system be good | user there: 5 tokens
    assert found.input_tokens.tolist() == [5, 5]
    assert found.time.tolist() == [1.0, 2.0]
    if form != "sglang":
        assert found.names["session"] == ("c",)


def test_a_parquet_table_of_any_kind_is_rows(tmp_path: Path, tokenizer: str) -> None:
    def at(n: int) -> datetime:
        return datetime.fromtimestamp(n, UTC)

    tables = {
        "tokens": {"prompt_token_ids": [[1, 2, 3, 4], [1, 2, 3, 9]], "timestamp": [at(1), at(2)]},
        "mooncake": {"hash_ids": [[0], [0]], "input_length": [4, 4], "timestamp": [at(1), at(2)], "block_size": [3, 3]},
        "chat": {"messages": [[SYSTEM, HI], [SYSTEM, THERE]], "created": [1, 2]},
        "phoenix": {"attributes.llm.input_messages": [[{"message.role": one["role"], "message.content": one["content"]}
                                                       for one in many] for many in ((SYSTEM, HI), (SYSTEM, THERE))],
                    "start_time": [at(1), at(2)]},
    }  # fmt: skip
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        found = read([str(tmp_path / f"{name}.parquet")], tokenizer=tokenizer, block_size=3)
        assert paths(found) == [[0], [0]], name
        assert found.time.tolist() == [1.0, 2.0], name


def test_parquet_files_and_lines_may_be_mixed(tmp_path: Path) -> None:
    written(tmp_path, {"token_ids": [1, 2], "timestamp": 1}, name="a.jsonl")
    pq.write_table(pa.table({"token_ids": [[1, 2, 3, 4]], "timestamp": [2]}), tmp_path / "b.parquet")
    assert paths(read([str(tmp_path / "*.*")], block_size=2)) == [[0], [0, 1]]


def test_a_message_is_tokenised_once(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvtally.traffic import read_text

    real, asked = read_text._tokenizer, []

    class Counting:
        def __init__(self, file: str | None) -> None:
            self.real = real(file)

        def encode(self, piece: str, **more: Any) -> Any:
            asked.append(piece)
            return self.real.encode(piece, **more)

    monkeypatch.setattr(read_text, "_tokenizer", Counting)
    turns = [{"messages": [SYSTEM, *[HI, THERE] * n], "timestamp": n} for n in range(1, 6)]
    read([written(tmp_path, *turns)], tokenizer=tokenizer, block_size=2)
    assert len(asked) == len(set(asked)) == 3


def test_a_breakpoint_that_moves_changes_nothing(tmp_path: Path, tokenizer: str) -> None:
    def marked(message: Record) -> Record:
        return {**message, "content": [{"type": "text", "text": message["content"], "cache_control": {"type": "x"}}]}

    tools = [{"name": "t", "cache_control": {"type": "x"}}], [{"name": "t"}]
    turns = [{"tools": tools[0], "messages": [SYSTEM, marked(HI)], "timestamp": 1},
             {"tools": tools[1], "messages": [SYSTEM, HI, marked(THERE)], "timestamp": 2}]  # fmt: skip
    one, two = paths(read([written(tmp_path, *turns)], tokenizer=tokenizer, block_size=1))
    assert two[: len(one)] == one


@pytest.mark.parametrize("prefix", ["gen_ai.prompt", "llm.input_messages"])
def test_messages_are_in_the_order_of_their_numbers(tmp_path: Path, tokenizer: str, prefix: str) -> None:
    said = [SYSTEM, *[HI, THERE] * 6]
    attributes = flat(prefix, (*said, THERE))
    last = {name.replace(".13.", f".{'9' * 5000}."): value for name, value in attributes.items()}
    turns = [{"messages": [*said, THERE], "timestamp": 1}, {"timestamp": 2, "attributes": last, "spanId": "a"}]
    one, two = paths(read([written(tmp_path, *turns)], tokenizer=tokenizer, block_size=2))
    assert one == two and len(one) == 14


texts = st.text(max_size=3)
trees = st.recursive(st.none() | st.integers() | texts, lambda inner: st.lists(inner, max_size=3)
                     | st.dictionaries(texts, inner, max_size=3), max_leaves=8)  # fmt: skip


@given(st.dictionaries(texts, trees, max_size=4))
def test_attributes_survive_otlp(attributes: Record) -> None:
    """What OTLP writes as lists of keys and values is read as the dict that was meant (text for all plain values)."""

    def said(one: object) -> object:
        if isinstance(one, dict):
            return {key: said(value) for key, value in one.items()}
        return [said(value) for value in one] if isinstance(one, list) else str(one)

    span = otlp(0, said(attributes))["resourceSpans"][0]["scopeSpans"][0]["spans"][1]  # type: ignore[arg-type]
    meant = said(attributes)
    assert isinstance(meant, dict)
    assert _attributes(span) == {**dict(_flat("", meant)), **meant}


@given(trees)
def test_bare_leaves_no_breakpoint_and_no_null_inside(tree: object) -> None:
    noisy = {"a": tree, "cache_control": {"type": "x"}, "b": None, "c": [{"cache_control": 1, "d": tree}]}
    assert bare(noisy) == bare({"a": tree, "c": [{"d": tree}]})
    assert bare(bare(noisy)) == bare(noisy)


def test_calls_without_messages_are_counted_and_named(tmp_path: Path, tokenizer: str) -> None:
    empty = {"timestamp": 3, "attributes": {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9}}
    found = read(
        [written(tmp_path, one_request("gen_ai", 1, SYSTEM, HI), empty, empty)], tokenizer=tokenizer, block_size=2
    )
    assert len(found) == 1
    assert found.notes[0] == ("left out: 2 calls of a model without their messages, which tracing leaves out until it "
                              "is told to capture content")  # fmt: skip
    with pytest.raises(InputError, match=r"no requests, expected at least one \(left out: 1 calls of a model"):
        read([written(tmp_path, empty)])


def test_what_litellm_answered_itself_never_reached_a_cache(tmp_path: Path, tokenizer: str) -> None:
    request = one_request("litellm", 1, SYSTEM, HI)
    found = read([written(tmp_path, request, {**request, "cache_hit": True})], tokenizer=tokenizer, block_size=2)
    assert len(found) == 1
    assert found.notes[0] == "left out: 1 requests that LiteLLM answered from its cache of responses"


def test_sglang_logs_give_token_ids_from_lines_and_from_json(tmp_path: Path) -> None:
    finish = (
        "[2026-01-01 00:00:05 TP0] Finish: obj=GenerateReqInput(rid='a', text=None, input_ids=[1, 2, 3]), "
        "out={'text': 'input_ids=[9]', 'meta_info': {'request_received_ts': 7.5, 'completion_tokens': 4}}\n"
    )
    other = "[2026-01-01 00:00:04 TP0] Decode batch, #running-req: 1\n"
    as_json = {"timestamp": "1970-01-01T00:00:08", "event": "request.finished",
               "obj": {"input_ids": [1, 2, 4]}, "out": {"meta_info": {"completion_tokens": 6}}}  # fmt: skip
    received = {"timestamp": "1970-01-01T00:00:01", "event": "request.received", "obj": {"input_ids": [1]}}
    found = read([written(tmp_path, other, finish, received, as_json, name="worker.log")], block_size=2)
    assert paths(found) == [[0], [0]]
    assert found.time.tolist() == [7.5, 8.0]
    assert found.output_tokens.tolist() == [4, 6]
    assert found.notes == ("left out: 1 lines of a log that finish no request",)


@pytest.mark.parametrize("cut", ["input_ids=[1, 2] ... [8, 9]", "text='be ... good'", "text=None"])
def test_a_prompt_that_the_log_cut_is_refused(tmp_path: Path, cut: str) -> None:
    line = f"[2026-01-01 00:00:05] Finish: obj=GenerateReqInput(rid='a', {cut}), out={{'text': ''}}\n"
    with pytest.raises(InputError, match=r"worker.log:1: a finished request without its whole prompt"):
        read([written(tmp_path, line, name="worker.log")])


def claude_line(uuid: str, parent: str | None, role: str, said: object, **more: Any) -> Record:
    usage = {"usage": {"input_tokens": 1, "output_tokens": 2}} if role == "assistant" else {}
    return {"type": role, "sessionId": "s", "uuid": uuid, "parentUuid": parent, "timestamp": iso(int(uuid)),
            "message": {"role": role, "content": said, **usage}, **more}  # fmt: skip


def test_claude_code_by_its_messages_where_a_tokenizer_is_named(tmp_path: Path, tokenizer: str) -> None:
    lines = [
        {"type": "summary", "summary": "x", "leafUuid": "y"},
        claude_line("1", None, "user", "hi"),
        claude_line("2", "1", "assistant", "good", requestId="a"),
        claude_line("3", "2", "assistant", "be", requestId="a"),  # more of the same answer
        claude_line("4", "3", "user", "there"),
        claude_line("5", "4", "assistant", "hi", requestId="b"),
        claude_line("6", "1", "user", "be", isSidechain=True, agentId="x"),  # another way on from the first message
        claude_line("7", "6", "assistant", "hi", requestId="c", isSidechain=True, agentId="x"),
    ]
    found = read([written(tmp_path, *lines)], tokenizer=tokenizer, block_size=2)
    assert paths(found) == [[0], [0, 1, 2, 3], [0, 4]]  # user hi | ? good | ? be | user there; user hi | user be
    assert found.input_tokens.tolist() == [2, 8, 4]
    assert found.names["session"] == ("s", "s/x")
    assert "neither the system prompt nor the tools" in found.notes[0]


@given(st.lists(st.lists(st.integers(0, 1), max_size=9), min_size=1, max_size=5), st.integers(1, 3))
def test_token_ids_are_the_same_requests_in_every_format(prompts: list[list[int]], size: int) -> None:
    if not any(len(tokens) >= size for tokens in prompts):
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        lines = [{"prompt_token_ids": tokens, "timestamp": n} for n, tokens in enumerate(prompts)]
        logged = [f"[1970-01-01 00:00:{n:02}] Finish: obj=GenerateReqInput(input_ids={tokens}), out={{}}\n"
                  for n, tokens in enumerate(prompts)]  # fmt: skip
        written(folder, *lines, name="a.jsonl")
        written(folder, *logged, name="b.log")
        typed = pa.schema({"prompt_token_ids": pa.list_(pa.int32()), "timestamp": pa.int64()})
        pq.write_table(pa.Table.from_pylist(lines, typed), folder / "c.parquet")
        found = [read([str(folder / one)], block_size=size) for one in ("a.jsonl", "b.log", "c.parquet")]
        ids = paths(found[0])
        blocks = [{"timestamp": 1000 * n, "input_length": len(tokens), "hash_ids": ids[n], "block_size": size}
                  for n, tokens in enumerate(prompts)]  # fmt: skip
        found.append(read([written(folder, *blocks, name="d.jsonl")]))
    for one in found[1:]:
        assert paths(one) == ids
        assert one.input_tokens.tolist() == [len(tokens) for tokens in prompts]
        assert one.time.tolist() == found[0].time.tolist()


def test_a_chain_that_goes_round_is_refused(tmp_path: Path, tokenizer: str) -> None:
    lines = [claude_line("1", "2", "user", "hi"), claude_line("2", "1", "user", "be"),
             claude_line("3", "2", "assistant", "good", requestId="a")]  # fmt: skip
    with pytest.raises(InputError, match=r"jsonl:3: `parentUuid` goes round in a circle"):
        read([written(tmp_path, *lines)], tokenizer=tokenizer)


BAD = [
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "text with half a character in it"),
    ({"prompt": [1, 2]}, r"`prompt` is \[1, 2\], expected a list of messages"),
    ({"messages": "[" * 200_000}, "no request asks for a block"),  # text that looks like JSON stays text
    ({"body": {"messages": None}}, "fields `body` are of no known format|`messages` is None"),
    ({"messages": [{"role": "user", "content": "redacted-by-litellm"}]},
     "`messages` is redacted, so that all prompts look alike"),
    ({"input": "hi", "previous_response_id": "r"}, "`previous_response_id` stands for turns that only the server has"),
    ({"messages": [3]}, r"`messages` is \[3\], expected a list of messages"),
    ({"messages": [], "timestamp": "noon"}, "the time is 'noon', expected seconds or ISO 8601"),
    ({"startTimeUnixNano": "noon", "attributes": {"gen_ai.input.messages": "[]"}},
     "`startTimeUnixNano` is 'noon', expected nanoseconds"),
    ({"resourceSpans": [{}]}, "`resourceSpans` without `scopeSpans`"),
    ({"spanId": "a", "attributes": [{"key": 1}]}, "expected keys and values"),
    ({"observations": [{"traceId": "a", "type": "GENERATION", "input": None}]},
     r"no requests, expected at least one \(left out: 1 generations without an input\)"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "message"), BAD)
def test_what_cannot_be_used_is_said(tmp_path: Path, tokenizer: str, record: Record, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read([written(tmp_path, record)], tokenizer=tokenizer)
