"""What is written: data to stdout, all else to stderr, files whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from kvtally.core.errors import InputError, UnreadableError


def open_streams() -> None:
    """Makes each stream one that can be used: a closed stdin is empty, a closed stdout refuses what is written.

    What an encoding has no sign for is replaced.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """Writes data to stdout; a pipe that was closed is met in `main`."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        raise UnreadableError(f"cannot be written: {error.strerror}", where="stdout") from None


def drop_stdout() -> None:
    """What is left unwritten goes nowhere, so that nothing is tried again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(text: str) -> None:
    """Writes everything that is not data to stderr, where that takes it."""
    with suppress(OSError):
        sys.stderr.write(text + "\n")


def say_help(group: click.Group) -> None:
    """Has the --help of a group and of its commands written as all data is."""
    for command in (group, *group.commands.values()):
        if command.add_help_option:
            click.help_option(callback=_help)(command)
            command.add_help_option = False


def _help(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        say(context.get_help())
        context.exit()


def write_whole(path: str | Path, content: str | bytes, option: str = "") -> None:
    """Writes `content` to `path`, which an option may have named; what was there stays until all is written."""
    with whole(path, option) as part:
        part.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))


@contextmanager
def whole(path: str | Path, option: str = "") -> Iterator[Path]:
    """A file to be filled, which then takes the place of `path`; where anything fails, all stays as it was."""
    with naming(path, option):
        part = _beside(path)
        try:
            yield part or Path(path)
            if part:
                part.replace(os.path.realpath(path))
        finally:
            if part:
                with suppress(OSError):
                    part.unlink(missing_ok=True)


def writable(_: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Refuses the file that an option names, before anything is computed, where it cannot be written."""
    if path is not None:
        with naming(path, option.opts[0]):
            part = _beside(path)
            if part:
                part.touch()
                part.unlink()
    return path


@contextmanager
def naming(path: str | Path, option: str = "") -> Iterator[None]:
    """Has an OSError say which file, or folder, cannot be written."""
    if not str(path):
        raise InputError(f"`{option}` is '', expected a name")
    try:
        yield
    except OSError as error:
        hint = f"choose another file for {option}" if option else ""
        raise UnreadableError(f"cannot be written: {error.strerror or error}", where=str(path), hint=hint) from None


def _beside(path: str | Path) -> Path | None:
    """Where the file is filled before it takes its place; None where `path` is a device or a pipe."""
    there, place = Path(path), Path(os.path.realpath(path))  # a link stays one
    if there.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if there.exists() and not there.is_file():
        return None
    return place.parent / f"{place.name[:40]}.{os.getpid()}.part"
