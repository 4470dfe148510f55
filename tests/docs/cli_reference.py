"""The page docs/cli.md: the help of every command, as click prints it at 80 columns.

`python tests/docs/cli_reference.py` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from kvtally.frontends.cli import HELP, kvtally
from kvtally.frontends.lab.command import lab

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEAD = f"""# Command line

Written from the commands themselves by `python tests/docs/cli_reference.py`.

## kvtally

```text
{HELP}
```
"""


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Each command with the words that call it, those of a group after it."""
    for name, found in group.commands.items():
        command = lab if name == "lab" else found
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for words, command in sorted(commands(kvtally, "kvtally"), key=lambda pair: pair[0]):
        context = click.Context(command, info_name=words, terminal_width=80, max_content_width=80)
        parts.append(f"## {words}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
