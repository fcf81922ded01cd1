"""Print data to stdout and notices to stderr. Colour is for terminals that support it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import IO, Any

import click

from rolecall.model.a2a import JsonObject, TaskState
from rolecall.protocol.text.timestamp import moment

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
_STATE_COLOURS = {
    "ready": "green",
    "completed": "green",
    "draining": "yellow",
    "suspect": "yellow",
    "failing": "red",
    "failed": "red",
    "rejected": "red",
}
_AT_WORK = (TaskState.SUBMITTED, TaskState.WORKING)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class CommandError(Exception):
    """A command failed: one line, a reason for programs, the exit code, and a hint."""

    def __init__(self, message: str, reason: str, code: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.reason, self.code, self.hint = message, reason, code, hint


def is_terminal(stream: IO[str]) -> bool:
    return stream.isatty()


def shows_in_place(stream: IO[str]) -> bool:
    """A terminal whose cursor can be moved."""
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def has_colour(stream: IO[str]) -> bool:
    return shows_in_place(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, colour: str, stream: IO[str]) -> str:
    return in_colour(text, colour) if has_colour(stream) else text


def in_colour(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def strip_control(text: str) -> str:
    """`text` without control characters: agents and callers wrote it, and must not control the terminal."""
    return _CONTROL.sub("", text)


def print_data(text: str) -> None:
    """On stdout."""
    click.echo(strip_control(text) if is_terminal(sys.stdout) else text)


def print_line(text: str, colour: str | None = None) -> None:
    """On stdout, with a colour on a terminal."""
    text = strip_control(text)
    click.echo(paint(text, colour, sys.stdout) if colour else text)


def checked_role(name: str) -> str:
    """A valid role, or role:instance. UsageError before any request is sent."""
    from rolecall.model.ids import is_instance, is_role, split_name

    role, instance = split_name(name)
    if not is_role(role) or (instance is not None and not is_instance(instance)):
        raise click.UsageError(
            f"{name!r} is not a valid role: use lowercase letters, digits, dot, dash and underscore, and no reserved word; "
            "an instance may follow after a colon."
        )
    return name


def print_notice(text: str, colour: str | None = None) -> None:
    """For people, on stderr."""
    text = strip_control(text)
    click.echo(paint(text, colour, sys.stderr) if colour else text, err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Aligned columns. On a terminal the head is bold and states have colours; no text is cut off."""
    cells, widths = _layout(columns, rows)
    click.echo(paint(_row(columns, widths), "bold", sys.stdout))
    for row in cells:
        line = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        state_cells = [_paint_state(cell, text) for cell, text in zip(row, line, strict=True)]
        click.echo("  ".join(state_cells).rstrip())


def table_width(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """How many characters wide `print_table` makes it."""
    _, widths = _layout(columns, rows)
    return sum(widths) + 2 * (len(widths) - 1)


def _layout(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[Sequence[Sequence[str]], Sequence[int]]:
    """The texts of the cells, and the widths of the columns."""
    cells = [[strip_control(str(cell)).replace("\n", " ") for cell in row] for row in rows]
    return cells, [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]


def _paint_state(cell: str, text: str) -> str:
    colour = _STATE_COLOURS.get(cell)
    return paint(text, colour, sys.stdout) if colour else text


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def print_facts(facts: Sequence[tuple[str, object]]) -> None:
    """One line per fact. Empty values are left out."""
    width = max((len(name) for name, _ in facts), default=0)
    for name, value in facts:
        if value not in (None, "", [], {}):
            click.echo(f"{name.ljust(width)}  {strip_control(str(value))}")


def print_error(error: CommandError) -> None:
    """`error: … [REASON]`, and the hint."""
    first, *more = error.message.splitlines() or [""]
    click.echo(f"{paint('error:', 'red', sys.stderr)} {strip_control(first)} [{error.reason}]", err=True)
    for line in (*more, *error.hint.splitlines()):
        click.echo(f"  {strip_control(line)}", err=True)


def counted(number: int, what: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(count: float) -> str:
    """A number of bytes, for people."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def disk_use(use: Mapping[str, Any]) -> str:
    """`disk` of the hub's health in words."""
    per_day, days = use.get("per_day", 0), use.get("full_in_days")
    growth = f", {size(per_day)} more a day: full in {days:,.0f} days" if days is not None else ""
    free = f", {size(use['free'])} free on it" if "free" in use else ""
    return f"disk {size(use['used'])} of {size(use['limit'])}{growth}{free}"


def took(row: JsonObject) -> str:
    """How long a task took, from its admission to its last change, or until now if it still works; empty if the row does not
    tell.
    """
    begun, changed = moment(str(row.get("created"))), moment(str(row.get("updated")))
    if begun is None or changed is None:
        return ""
    return duration(max(0.0, (time.time() if row.get("state") in _AT_WORK else changed) - begun))


def local_time(text: object, *, short: bool = False) -> str:
    """A time of the hub in the zone of this machine. `short`: of today the time alone, of other days without the seconds."""
    at = moment(str(text))
    if at is None:
        return str(text)
    here, today = datetime.fromtimestamp(at), date.today()
    if not short:
        return here.strftime("%Y-%m-%d %H:%M:%S")
    return here.strftime("%H:%M:%S" if here.date() == today else "%m-%d %H:%M" if here.year == today.year else "%Y-%m-%d")


def local_zone(text: object = None) -> str:
    """As it was at that time of the hub, or is now: `UTC+02:00`."""
    at = moment(str(text))
    offset = datetime.fromtimestamp(time.time() if at is None else at).astimezone().strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:5]}" if offset.strip("+-0") else "UTC"


def cut(text: str, width: int) -> str:
    """In one line of so many characters at most."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return (
        f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"
    )
