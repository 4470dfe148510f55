"""`kvtally explore`: writes the page and opens it."""

from __future__ import annotations

from pathlib import Path

import click

from kvtally.core.errors import KvtallyError, UnreadableError


@click.command()
@click.option("--model", metavar="MODEL", help="The decoder it opens with: as in `kvtally count MODEL`.")
@click.option("--out", metavar="FILE", help="The file to write [a temporary one].")
@click.option("--no-open", is_flag=True, help="Write it, and open no browser.")
def explore(model: str | None, out: str | None, no_open: bool) -> int:
    """Write the page that shows what a cache saves, and open it.

    One file without a library; it asks nothing of the network.
    """
    import tempfile
    import webbrowser

    from kvtally.frontends.explore.write import html

    try:
        text = html(model)
    except KvtallyError as error:
        raise error.at("explore") from None
    path = Path(out) if out else Path(tempfile.mkdtemp(prefix="kvtally-")) / "explore.html"
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableError(
            f"cannot be written: {error.strerror}", where=str(path), hint="choose another file for --out"
        ) from None
    click.echo(path)
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        click.echo("no browser was found: open the file yourself", err=True)
    return 0
