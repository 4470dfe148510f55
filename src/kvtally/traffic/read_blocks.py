"""Trace formats that carry block ids: Mooncake, Bailian, WEKA (kv-cache-tester), LMCache, RAGPulse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvtally.core.errors import InputError, UnreadableError
from kvtally.traffic.chain import PieceChain
from kvtally.traffic.read_lines import Bad, records
from kvtally.traffic.rows import Row, ids, integer, text
from kvtally.traffic.times import seconds

Record = dict[str, Any]
MOONCAKE, BAILIAN, RAGPULSE = 512, 16, 16  # tokens of a block where the trace does not say
PIECES = (  # RAGPulse: group of ids, side file, its key; in the order of the prompt
    ("sys_prompt", "1_sys_prompt.jsonl", "sys_prompt_id"),
    ("passages_ids", "2_passages.jsonl", "passage_id"),
    ("history", "3_history.jsonl", "history_id"),
    ("web_search", "5_web_search.jsonl", "web_search_id"),
    ("user_input", "4_user_input.jsonl", "user_input_id"),
)


def covered(path: list[int], tokens: int, block_size: int) -> list[int]:
    """The path itself where it covers the tokens in full blocks, or with one partial block more."""
    if len(path) not in (tokens // block_size, -(-tokens // block_size)):
        low, high = tokens // block_size, -(-tokens // block_size)
        raise InputError(
            f"`hash_ids` has {len(path):,} ids for `input_length` {tokens:,}, "
            f"expected {low if low == high else f'{low:,} or {high:,}'} at {block_size:,} tokens a block",
            hint="name the trace's own block size with --trace-block-size",
        )
    return path


def mooncake(record: Record, block_size: int | None) -> Iterator[Row]:
    """{timestamp in ms, input_length, output_length, hash_ids}, and block_size, session_id where they are there."""
    size = block_size or integer(record, "block_size", MOONCAKE, least=1)
    tokens = integer(record, "input_length")
    yield Row(
        firsts=covered(ids(record, "hash_ids"), tokens, size),
        block_size=size,
        input_tokens=tokens,
        output_tokens=integer(record, "output_length", 0),
        time=seconds(record, unit=1e-3),
        session=text(record, "session_id"),
        model=text(record, "model"),
        tenant=text(record, "tenant", "user"),
    )


@dataclass(slots=True)
class Bailian:
    """{chat_id, parent_chat_id, timestamp in s, input_length, output_length, type, turn, hash_ids}."""

    root: dict[str, str] = field(default_factory=dict)  # chat to the first chat of its conversation

    def __call__(self, record: Record, block_size: int | None) -> Iterator[Row]:
        size = block_size or BAILIAN
        tokens = integer(record, "input_length")
        chat, parent = text(record, "chat_id"), text(record, "parent_chat_id")
        self.root[chat] = self.root.get(parent, chat if parent in ("", "-1") else parent)
        yield Row(
            firsts=covered(ids(record, "hash_ids"), tokens, size),
            block_size=size,
            input_tokens=tokens,
            output_tokens=integer(record, "output_length", 0),
            time=seconds(record),
            session=self.root[chat],
            tenant=text(record, "type"),
        )


def weka(record: Record, block_size: int | None) -> Iterator[Row]:
    """{id, block_size, requests: [{t, in, out, hash_ids or hash_runs, or requests of a subagent}]}."""
    size = block_size or integer(record, "block_size", least=1)
    if record.get("hash_id_scope", "local") != "local":
        raise InputError(f"`hash_id_scope` is {record['hash_id_scope']!r:.40}; known: `local`")
    yield from _weka(record, size, text(record, "id"), 0.0)


def _weka(record: Record, size: int, session: str, base: float) -> Iterator[Row]:
    inner = record.get("requests")
    if not isinstance(inner, list) or not all(isinstance(one, dict) for one in inner):
        raise InputError(f"`requests` is {inner!r:.60}, expected a list of requests")
    times = [seconds(one, "t") for one in inner]
    begin = min((t for t in times if t is not None), default=0.0)
    shift = base if begin < base else 0.0  # nested times: relative in older traces, absolute in newer ones
    for one, t in zip(inner, times, strict=True):
        if t is None:
            raise InputError("`t` is missing, expected the seconds since the trace began")
        if "requests" in one:
            yield from _weka(one, size, f"{session}/{text(one, 'agent_id')}", t + shift)
            continue
        firsts, counts = _runs(one) if "hash_runs" in one else (ids(one, "hash_ids"), None)
        tokens, blocks = integer(one, "in"), sum(counts) if counts is not None else len(firsts)
        if blocks not in (tokens // size, -(-tokens // size)):
            raise InputError(f"{blocks:,} ids for `in` {tokens:,} at t = {t:g}, expected {tokens // size:,}")
        yield Row(
            firsts=firsts,
            counts=counts,
            block_size=size,
            input_tokens=tokens,
            output_tokens=integer(one, "out", 0),
            time=t + shift,
            session=session,
            model=text(one, "model"),
        )


def _runs(record: Record) -> tuple[list[int], list[int]]:
    """[first, count] pairs as two lists."""
    runs = record["hash_runs"]
    try:
        firsts, counts = [first for first, _ in runs], [count for _, count in runs]
    except (TypeError, ValueError):
        raise InputError(f"`hash_runs` is {runs!r:.60}, expected [first, count] pairs") from None
    if any(type(one) is not int or one < 0 for one in firsts + counts):
        raise InputError(f"`hash_runs` is {runs!r:.60}, expected integers of at least 0")
    return firsts, counts


@dataclass(slots=True)
class LMCache:
    """{timestamp, request_id, model_name, chunk_size, seq_len, chunk_hashes}: hashes of full chunks, in hex."""

    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def __call__(self, record: Record, block_size: int | None) -> Iterator[Row]:
        size = block_size or integer(record, "chunk_size", least=1)
        hashes = record.get("chunk_hashes")
        if not isinstance(hashes, list) or not all(isinstance(one, str | int) for one in hashes):
            raise InputError(f"`chunk_hashes` is {hashes!r:.60}, expected a list of hashes")
        tokens, model = integer(record, "seq_len"), text(record, "model_name")
        if len(hashes) != tokens // size:
            raise InputError(
                f"`chunk_hashes` has {len(hashes):,} for `seq_len` {tokens:,}, expected {tokens // size:,}"
            )
        yield Row(
            firsts=[self.known.setdefault((model, str(one)), len(self.known)) for one in hashes],
            block_size=size,
            input_tokens=tokens,
            time=seconds(record),
            session=text(record, "session_id"),
            model=model,
        )


@dataclass(slots=True)
class RagPulse:
    """{timestamp, input_length, output_length, hash_ids: five groups, session_id}, lengths in files beside it.

    Ids name pieces of content and are not chained: they are chained here, in the order of the prompt. The
    tokens of the prompt's own frame belong to no piece and are not placed.
    """

    folder: Path
    lengths: dict[str, dict[int, int]] = field(default_factory=dict)
    chain: PieceChain | None = None

    def __call__(self, record: Record, block_size: int | None) -> Iterator[Row]:
        if self.chain is None:
            self.chain = PieceChain(block_size=block_size or RAGPULSE)
            self.lengths = {group: _lengths(self.folder / file, key) for group, file, key in PIECES}
        groups = record.get("hash_ids")
        if not isinstance(groups, dict):
            raise InputError(f"`hash_ids` is {groups!r:.60}, expected groups of ids")
        pieces = [(one, self._length(group, one)) for group, _, _ in PIECES for one in ids(groups, group)]
        firsts, counts = self.chain.path(pieces)
        yield Row(
            firsts=firsts,
            counts=counts,
            block_size=self.chain.block_size,
            input_tokens=integer(record, "input_length"),
            output_tokens=integer(record, "output_length", 0),
            time=seconds(record),
            session=text(record, "session_id"),
        )

    def _length(self, group: str, piece: int) -> int:
        try:
            return self.lengths[group][piece]
        except KeyError:
            raise InputError(f"`{group}` holds {piece}, expected an id of the file of its lengths") from None


def _lengths(path: Path, key: str) -> dict[int, int]:
    try:
        return dict(_length(where, record, key) for where, record in records(str(path), Bad()))
    except UnreadableError as error:
        hint = error.hint or "RAGPulse keeps lengths beside the trace"
        raise UnreadableError(error.problem, where=error.where, hint=hint) from None


def _length(where: str, record: Record, key: str) -> tuple[int, int]:
    """A piece and its tokens."""
    try:
        return integer(record, key), integer(record, "token_length")
    except InputError as error:
        raise error.at(where) from None
