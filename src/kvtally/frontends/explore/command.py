"""`kvtally explore`: writes the page and opens it."""

from __future__ import annotations

from pathlib import Path

import click

from kvtally.core.errors import KvtallyError
from kvtally.frontends.output import complain, say, writable, write_whole


@click.command()
@click.option("--model", metavar="MODEL", help="The decoder it opens with: as in `kvtally count MODEL`.")
@click.option("--out", metavar="FILE", callback=writable, help="The file to write [a temporary one].")
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
    path = Path(tempfile.mkdtemp(prefix="kvtally-")) / "explore.html" if out is None else Path(out)
    write_whole(path, text, "--out")
    say(str(path))
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        complain("no browser was found: open the file yourself")
    return 0
