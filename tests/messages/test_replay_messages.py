"""Wrong traces and wrong questions to `kvtally replay`: every message pinned, exit code and all."""

from __future__ import annotations

import gzip
import json
import pickle
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from kvtally.frontends.cli import main

OK: dict[str, Any] = {"timestamp": 0, "input_length": 32, "hash_ids": [0, 1], "block_size": 16}
LENGTHS = "only lengths, which cannot tell what two prompts share, expected block ids, token ids or messages"
INTEGER = "expected an integer from 0 to 1,073,741,824"
PARQUET = "\n\nhint: kvtally replay convert TRACE… --to FILE.parquet"
PICKLE = (
    "t.jsonl: a pickle runs code when it is loaded, expected JSON lines or Parquet\n\n"
    'hint: write {"token_ids": […], "timestamp": …} lines where the pickle was made'
)
CHAINED = "\n\nhint: an id must stand for its whole prefix; write token ids or messages and they are chained here"

LEVELS = 600 if sys.version_info < (3, 12) else 1200  # json reads them, and a function that calls itself cannot
DEEP = "[" * LEVELS + "]" * LEVELS
NAMELESS = {"type": "assistant", "sessionId": "s", "uuid": None, "message": {"usage": {"input_tokens": 64}}}

LINES: list[tuple[list[object], str]] = [
    ([OK, '{"timestamp": 5, "inp'],
     't.jsonl:2: `{"timestamp": 5, "inp…` is not JSON (Invalid control character at), expected one request a line'),
    (["[1]"], "t.jsonl:1: a value of type list, expected a JSON object"),
    ([{**OK, "hash_ids": [0, "a"]}], "t.jsonl:1: `hash_ids` holds 'a', expected integers"),
    ([{**OK, "hash_ids": None}], "t.jsonl:1: `hash_ids` is None, expected a list of integers"),
    ([{**OK, "input_length": 99}],
     "t.jsonl:1: `hash_ids` has 2 ids for `input_length` 99, expected 6 or 7 at 16 tokens a block\n\n"
     "hint: name the trace's own block size with --trace-block-size"),
    ([{**OK, "input_length": -4}], f"t.jsonl:1: `input_length` is -4, {INTEGER}"),
    ([{**OK, "input_length": 2**40}], f"t.jsonl:1: `input_length` is {2**40}, {INTEGER}"),
    ([{**OK, "block_size": 0}], "t.jsonl:1: `block_size` is 0, expected an integer from 1 to 1,073,741,824"),
    ([OK, {**OK, "hash_ids": [2, 1]}],
     "block 1 has parent 0 and, in request 2, parent 2, expected one: a hash collision, or ids that are not chained"
     + CHAINED),
    ([{**OK, "hash_ids": [1, 1]}],
     "block 1 has no parent and, in request 1, parent 1, expected one: a hash collision, or ids that are not chained"
     + CHAINED),
    ([OK, {**OK, "block_size": 32, "input_length": 64}],
     "t.jsonl:2: blocks of 32 tokens after blocks of 16, expected one size\n\nhint: replay them one at a time"),
    ([], "no requests, expected at least one"),
    ([{**OK, "input_length": 5, "hash_ids": []}],
     "no request asks for a block, expected prompts of at least one block"),
    ([{"input_length": 5, "output_length": 1}], f"t.jsonl:1: fields `input_length`, `output_length`: {LENGTHS}"),
    ([{"ts": 1, "events": []}],
     "t.jsonl:1: KV events tell what was stored and removed, not what was asked for, expected requests"),
    ([{"foo": 1}],
     "t.jsonl:1: fields `foo` are of no known format; known: `mooncake`, `bailian`, `weka`, `ragpulse`, `lmcache`, "
     "`tokens`, `chat`, `otel`, `langfuse`, `sglang`, `claude-code`\n\n"
     'hint: or write {"token_ids": […], "timestamp": …} lines'),
    ([{"messages": []}],
     "t.jsonl:1: the trace holds text and no tokenizer is named, expected a tokenizer.json\n\n"
     "hint: name the model's own with --tokenizer FILE"),
    ([{**OK, "timestamp": "noon"}], "t.jsonl:1: `timestamp` is 'noon', expected a number"),
    ([{**OK, "timestamp": float("nan")}], "t.jsonl:1: `timestamp` is nan, expected a number"),
    ([OK, {"input_length": 32, "hash_ids": [0, 1], "block_size": 16}],
     "1 of 2 requests have no time, expected all or none to have"),
    ([{"id": "x", "block_size": 64, "requests": [{"t": 0, "in": 1000, "hash_ids": [1]}]}],
     "t.jsonl:1: 1 ids for `in` 1,000 at t = 0, expected 15"),
    ([{"id": "x", "block_size": 64, "requests": [{"t": 0, "in": 64, "hash_runs": [[1, 1, 1]]}]}],
     "t.jsonl:1: `hash_runs` is [[1, 1, 1]], expected [first, count] pairs"),
    ([{"chunk_size": 256, "seq_len": 600, "chunk_hashes": ["a"]}],
     "t.jsonl:1: `chunk_hashes` has 1 for `seq_len` 600, expected 2"),
    ([{"token_ids": [1], "output_length": 2**40}], f"t.jsonl:1: `output_length` is {2**40}, {INTEGER}"),
    ([{"token_ids": [1], "output_length": 10**20}], f"t.jsonl:1: `output_length` is {10**20}, {INTEGER}"),
    ([{"token_ids": [1], "output_length": "9" * 5000}], f"t.jsonl:1: `output_length` is '{'9' * 59}, {INTEGER}"),
    ([{**OK, "timestamp": 10**400}], f"t.jsonl:1: `timestamp` is {10**59}, expected a number"),
    ([{**OK, "timestamp": True}], "t.jsonl:1: `timestamp` is True, expected a number"),
    ([{"token_ids": [1], "timestamp": 10**400}],
     f"t.jsonl:1: the time is {10**59}, expected seconds or ISO 8601"),
    ([{"token_ids": [1], "timestamp": True}], "t.jsonl:1: the time is True, expected seconds or ISO 8601"),
    ([{"start_time_unix_nano": 10**400, "attributes": {"gen_ai.input.messages": "[]"}}],
     f"t.jsonl:1: `start_time_unix_nano` is {10**59}, expected nanoseconds since the epoch"),
    ([f'{{"messages": [{{"role": "user", "content": {DEEP}}}]}}'],
     "t.jsonl:1: JSON nested too deep, expected a request"),
    ([{"line": r"Finish: obj=GenerateReqInput(text='\x'), out={}"}],
     r"t.jsonl:1: `text` is '\x', expected text as Python writes it"),
    ([NAMELESS, NAMELESS],
     "t.jsonl:1: a request without `requestId`, `id` or `uuid`, expected one of them"),
    ([{"token_ids": [-1] * 20}], "t.jsonl:1: a token id is negative or too large, expected 64-bit integers"),
    ([{"attributes": {"gen_ai.input.messages": "hi"}}],
     "t.jsonl:1: `gen_ai.input.messages` is 'hi', expected JSON"),
]  # fmt: skip

WORDS = [
    ("replay", 2, "kvtally replay: no trace is named\n\nhint: name files, or - for stdin"),
    ("replay nowhere.jsonl", 3, "nowhere.jsonl: no such file, expected a trace"),
    (f"replay {'a' * 300}", 3, f"{'a' * 300}: cannot be read: File name too long"),
    ("replay t.jsonl --block-size 24", 2,
     "`--block-size` is 24 and the trace has blocks of 16 tokens, expected a multiple: what is inside a block is "
     "not known"),
    ("replay t.jsonl --block-size 0", 2,
     "`--block-size` is 0, expected an integer of at least 1 and at most 1,000,000,000,000"),
    ("replay t.jsonl --ttl soon", 2, "`--ttl` is 'soon', expected a time, such as 90s, 5min or 1h"),
    ("replay convert t.jsonl", 2, f"`convert` is given without `--to`{PARQUET}"),
    ("replay t.jsonl --to x", 2, f"`--to` is given without `convert`{PARQUET}"),
    ("replay t.jsonl --policy lru", 2,
     "`--policy` is given without `--capacity`\n\nhint: write --policy lru,belady --capacity 1000,10000"),
    ("replay t.jsonl --capacity 5", 2,
     "`--capacity` is given without `--policy`\n\nhint: write --policy lru,belady --capacity 1000,10000"),
    ("replay t.jsonl --policy mru --capacity 5", 2,
     "`--policy` is 'mru'; known: `arc`, `belady`, `fifo`, `lfu`, `lru`, `s3fifo`"),
    ("replay t.jsonl --policy lru --capacity 1e3", 2,
     "`--capacity[0]` is '1e3', expected an integer of at least 1"),
    ("replay t.jsonl --policy lru --capacity 5," + "9" * 5000, 2,
     f"`--capacity[1]` is '{'9' * 40}…', expected an integer of at least 1"),
    ("replay t.jsonl --policy '' --capacity 5", 2,
     "`--policy` is ''; known: `arc`, `belady`, `fifo`, `lfu`, `lru`, `s3fifo`"),
    ("replay t.jsonl --ttl -5", 2, "`--ttl` is -5, expected a number above 0"),
    ("replay t.jsonl --ttl 0min", 2, "`--ttl` is 0, expected a number above 0"),
    ("replay t.jsonl --ttl 1e400", 2, "`--ttl` is inf, expected a number above 0"),
    ("replay t.jsonl --kv-cache-dtype banana", 2,
     "`--kv-cache-dtype` is given without `--model`, expected that as well"),
    ("replay t.jsonl --route random", 2, "`--route` is given without `--replicas`, expected that as well"),
    ("replay t.jsonl --tokenizer nowhere.json", 3, "nowhere.json: no such file, expected a tokenizer.json"),
    ("replay t.jsonl --by session --format csv", 2, "`--by` is given with `--format csv`, where it means nothing\n\n"
     "hint: JSON has every part"),
    ("replay t.jsonl --by user", 2, "`--by` is 'user'; known: `model`, `session`, `tenant`"),
    ("replay t.jsonl --mode sglang", 2, "`--mode` is 'sglang'; known: `ideal`, `vllm`"),
    ("replay t.jsonl --route best --replicas 2", 2,
     "`--route` is 'best'; known: `longest-prefix`, `random`, `round-robin`, `sticky`"),
    ("replay t.jsonl --format xml", 2, "`--format` is 'xml'; known: `csv`, `json`, `md`, `table`"),
    ("replay t.jsonl --trace-format pcap", 2,
     "t.jsonl:1: `--trace-format` is 'pcap'; known: `mooncake`, `bailian`, `weka`, `ragpulse`, `lmcache`, `tokens`, "
     "`chat`, `otel`, `langfuse`, `sglang`, `claude-code`"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(records: list[object], name: str = "t.jsonl") -> None:
    Path(name).write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in records))


def said(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert out == ""
    return code, err.removesuffix("\n")


@pytest.mark.parametrize(("records", "message"), LINES)
def test_a_wrong_trace(records: list[object], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(records)
    assert said("replay t.jsonl", capsys) == (2, message)


@pytest.mark.parametrize(("words", "code", "message"), WORDS)
def test_a_wrong_question(words: str, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    write([OK])
    assert said(words, capsys) == (code, message)


@pytest.mark.parametrize(
    "words",
    ["--model nope", "--ttl banana", "--format json", "--html q.html", "--out o", "--by user", "--policy mru",
     "--replicas 2", "--route random", "--cache-per model", "--min-prefix 2", "--mode vllm", "--capacity 3",
     "--kv-cache-dtype fp8", "--engine ray"],
)  # fmt: skip
def test_what_convert_does_not_read_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    write([OK])
    expected = f"`{words.split(maxsplit=1)[0]}` is given with `convert`, where it means nothing"
    assert said(f"replay convert t.jsonl --to x.parquet {words}", capsys) == (2, expected)
    assert not Path("x.parquet").exists()


@pytest.mark.parametrize("words", ["--trace-format tokens", "--trace-block-size 3", "--tokenizer t.json", "--skip-bad"])
def test_what_ray_does_not_read_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = (
        f"`{words.split(maxsplit=1)[0]}` is given with `--engine ray`, where it means nothing\n\n"
        "hint: Ray reads what `kvtally replay convert` wrote"
    )
    assert said(f"replay t.parquet --engine ray {words}", capsys) == (2, expected)


def test_a_pickle_is_never_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.jsonl").write_bytes(pickle.dumps([OK]))
    assert said("replay t.jsonl", capsys) == (2, PICKLE)


def test_a_table_of_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    write(["TIMESTAMP,ContextTokens,GeneratedTokens"], "t.csv")
    expected = f"t.csv: columns TIMESTAMP,ContextTokens,GeneratedTokens: {LENGTHS}"
    assert said("replay t.csv", capsys) == (2, expected)


def test_a_gzip_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.jsonl.gz").write_bytes(gzip.compress(json.dumps(OK).encode() * 500)[:60])
    code, message = said("replay t.jsonl.gz", capsys)
    assert code == 3
    assert message.startswith("t.jsonl.gz:1: the compressed data is cut short or damaged (Compressed file ended")


def test_a_zst_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfdjunk junk")
    code, message = said("replay t.jsonl.zst", capsys)
    assert code == 3
    assert message.startswith("t.jsonl.zst:1: the compressed data is cut short or damaged (ZSTD")


def test_parquet_that_is_none_and_parquet_of_another_kind(capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path("t.parquet").write_bytes(b"PAR1junk")
    code, message = said("replay t.parquet", capsys)
    assert code == 3
    assert message.startswith("t.parquet: cannot be read as Parquet (")
    pq.write_table(pa.table({"a": [1]}), "t.parquet")
    code, message = said("replay t.parquet", capsys)
    assert code == 2
    assert message.startswith("t.parquet: row 1: fields `a` are of no known format; known: `mooncake`")


def test_ragpulse_without_its_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    write([{"timestamp": 1, "input_length": 5, "hash_ids": {"sys_prompt": [1]}}])
    assert said("replay t.jsonl", capsys) == (
        3,
        "t.jsonl:1: 1_sys_prompt.jsonl: cannot be read: No such file or directory\n\n"
        "hint: RAGPulse keeps lengths beside the trace",
    )


SIDE = {
    "no JSON": ('{"sys_prompt_id": 1, "token_length": 5}\n{"sys',
                ":2: `{\"sys…` is not JSON (Unterminated string starting at), expected one request a line"),
    "a number": ("3", ":1: a value of type int, expected a JSON object"),
    "no length": ('\n{"sys_prompt_id": 1}', f":2: `token_length` is None, {INTEGER}"),
    "a length of text": ('{"sys_prompt_id": 1, "token_length": "5"}', f":1: `token_length` is '5', {INTEGER}"),
    "a length below 0": ('{"sys_prompt_id": 1, "token_length": -5}', f":1: `token_length` is -5, {INTEGER}"),
    "no id": ('{"token_length": 5}', f":1: `sys_prompt_id` is None, {INTEGER}"),
    "no UTF-8": ('{"sys_prompt_id": \udcff', ":1: `{\"sys_prompt_id\": \ufffd…` is not JSON (UnicodeDecodeError), "
                 "expected one request a line"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIDE)
def test_ragpulse_with_lengths_that_cannot_be_read(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    written, message = SIDE[name]
    write([{"timestamp": 1, "input_length": 5, "hash_ids": {"sys_prompt": [1]}}])
    Path("1_sys_prompt.jsonl").write_bytes(written.encode("utf-8", "surrogateescape"))
    assert said("replay t.jsonl", capsys) == (2, f"t.jsonl:1: 1_sys_prompt.jsonl{message}")
