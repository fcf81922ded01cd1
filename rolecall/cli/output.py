"""What goes where: data on stdout, talk on stderr. Colour only where a terminal wants it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import IO, Any

import click

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_STATE_COLOURS = {
    "ready": "green",
    "completed": "green",
    "draining": "yellow",
    "suspect": "yellow",
    "failed": "red",
    "rejected": "red",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class CommandError(Exception):
    """Why a command ends without its result: one line, a reason for programs, a hint, and the exit code."""

    def __init__(self, message: str, reason: str, code: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.reason, self.code, self.hint = message, reason, code, hint


def on_terminal(stream: IO[str]) -> bool:
    return stream.isatty()


def wants_colour(stream: IO[str]) -> bool:
    return on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: IO[str]) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if wants_colour(stream) else text


def harmless(text: str) -> str:
    """`text` without what would steer a terminal: agents and callers wrote it."""
    return _CONTROL.sub("", text)


def say(text: str) -> None:
    """Data, for whoever reads stdout."""
    click.echo(harmless(text) if on_terminal(sys.stdout) else text)


def checked_role(name: str) -> str:
    """A role, or role:instance, that can exist; said before anybody is asked."""
    from rolecall.model.ids import is_instance, is_role, split_name

    role, instance = split_name(name)
    if not is_role(role) or (instance is not None and not is_instance(instance)):
        raise click.UsageError(
            f"{name!r} cannot be a role: small letters, digits, dot, dash and underscore, and no reserved word; "
            "an instance may follow behind a colon."
        )
    return name


def talk(text: str, colour: str | None = None) -> None:
    """Words for the person, on stderr."""
    text = harmless(text)
    click.echo(paint(text, colour, sys.stderr) if colour else text, err=True)


def say_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def say_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns. On a terminal the head is bold and states have their colour; nothing is ever cut off."""
    cells = [[harmless(str(cell)).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[index]) for row in cells)) if cells else len(name) for index, name in enumerate(columns)]
    click.echo(paint(_line(columns, widths), "bold", sys.stdout))
    for row in cells:
        line = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        painted = [_painted(cell, text) for cell, text in zip(row, line, strict=True)]
        click.echo("  ".join(painted).rstrip())


def _painted(cell: str, text: str) -> str:
    colour = _STATE_COLOURS.get(cell)
    return paint(text, colour, sys.stdout) if colour else text


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def say_facts(facts: Sequence[tuple[str, object]]) -> None:
    """One thing, a line per fact; what is empty is left out."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        if value not in (None, "", [], {}):
            click.echo(f"{name.ljust(width)}  {harmless(str(value))}")


def complain(problem: CommandError) -> None:
    """`error: … [REASON]`, and what to do about it."""
    first, *more = problem.message.splitlines() or [""]
    click.echo(f"{paint('error:', 'red', sys.stderr)} {harmless(first)} [{problem.reason}]", err=True)
    for line in (*more, *problem.hint.splitlines()):
        click.echo(f"  {harmless(line)}", err=True)


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
