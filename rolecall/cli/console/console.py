"""One console for many programs: each line begins with the name of its program."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO

import click

from rolecall.cli.console.lines import safe_line
from rolecall.cli.output import has_colour, in_colour, strip_control

_QUEUED = 1000
"""Lines. When so many wait for a slow terminal, the programs wait too."""
_COLOURS = ("36", "33", "32", "35", "34", "96", "93", "92", "95", "94")
_BOLD = "1"
_ROOM_POLL = 0.05


class Printer:
    """Writes in a thread, so that a terminal that takes nothing stops only output."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._on_broken: Callable[[], None] | None = None
        self._queue: queue.Queue[str | None] = queue.Queue(_QUEUED)
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)
        self._thread.start()

    def when_broken(self, call: Callable[[], None]) -> None:
        """Call it, in the thread, when nobody reads any more."""
        self._on_broken = call

    def put(self, text: str) -> None:
        """Blocks while too much waits: for threads."""
        self._queue.put(text)

    def offer(self, text: str) -> bool:
        """Never blocks. False: it does not fit, and is not written."""
        try:
            self._queue.put_nowait(text)
        except queue.Full:
            return False
        return True

    def close(self, seconds: float) -> bool:
        """Whether all was written in that time."""
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return False
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (text := self._queue.get()) is not None:
            if not self._broken:
                try:
                    self._write(text)
                except (OSError, ValueError):  # the terminal or the reader of the pipe has gone
                    self._broken = True
                    if self._on_broken is not None:
                        self._on_broken()


class Console:
    """`own`: the name that its own lines begin with."""

    def __init__(self, printer: Printer, *, own: str, colour: bool) -> None:
        self._printer = printer
        self._own = own
        self._colour = colour
        self._width = len(own)
        self._colours: dict[str, str] = {own: _BOLD}

    def expect(self, names: Iterable[str]) -> None:
        """Programs whose lines will come: prefixes are aligned, and each group has a colour."""
        for name in names:
            self._width = max(self._width, len(name))
            self._colours.setdefault(_group(name), _COLOURS[(len(self._colours) - 1) % len(_COLOURS)])

    def line(self, name: str, text: str) -> None:
        """A line of a program. For threads: it waits for a slow terminal."""
        self._printer.put(self._with_prefix(name, safe_line(text, colour=self._colour)))

    async def news(self, name: str, text: str, colour: str | None) -> None:
        """A line of what is shown beside the programs. For tasks: it waits for a slow terminal."""
        text = strip_control(text)
        line = self._with_prefix(name, in_colour(text, colour) if colour is not None and self._colour else text)
        while not self._printer.offer(line):  # noqa: ASYNC110 - the printer is a thread
            await asyncio.sleep(_ROOM_POLL)

    def report(self, text: str) -> None:
        """A line of its own. Where nobody reads, nobody misses it."""
        self._printer.offer(self._with_prefix(self._own, strip_control(text)))

    def write(self, lines: Iterable[str]) -> None:
        """Lines without a prefix: commands to paste."""
        self._printer.offer("".join(f"{strip_control(line)}\n" for line in lines))

    def _with_prefix(self, name: str, text: str) -> str:
        prefix = f"{name.ljust(self._width)} |"
        return f"{self._in_colour(prefix, name)} {text}".rstrip() + "\n"

    def _in_colour(self, prefix: str, name: str) -> str:
        return f"\x1b[{self._colours.get(_group(name), _BOLD)}m{prefix}\x1b[0m" if self._colour else prefix


def _group(name: str) -> str:
    """Instances of one worker share a colour."""
    return name.partition(":")[0]


def on_stdout(own: str) -> tuple[Console, Printer]:
    stream = sys.stdout
    printer = Printer(lambda text: _write_through(stream, text))
    return Console(printer, own=own, colour=has_colour(stream)), printer


def _write_through(stream: IO[str], text: str) -> None:
    click.echo(text, file=stream, nl=False)  # it makes colours of the codes on Windows, too
