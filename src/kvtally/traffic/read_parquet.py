"""Rows of a Parquet file of any kind as records, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvtally.core.errors import UnreadableError
from kvtally.traffic.canonical import DAMAGE, opened
from kvtally.traffic.read_lines import Progress

ROWS = 256  # turned into Python objects at a time


def rows(path: str, progress: Progress | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(`file: row n`, record by column) of each row; a column that is null in a row is not in its record."""
    file, n = opened(path), 0
    try:
        for batch in file.iter_batches(batch_size=ROWS):
            if progress:
                progress(path, n, file.metadata.num_rows)
            for row in batch.to_pylist():
                n += 1
                yield f"{path}: row {n}", {name: value for name, value in row.items() if value is not None}
    except DAMAGE as error:
        raise UnreadableError(f"is damaged after row {n} ({str(error)[:80]})", where=path) from None
