"""The output of programs as lines that are safe on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rolecall.cli.output import strip_control

LONGEST = 16 * 1024
"""Bytes of one line that are shown."""
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_RESET = "\x1b[0m"


class LineSplitter:
    """Bytes become lines. It holds no more than one line, and of that no more than `LONGEST` bytes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._cut = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._hold(piece)
            yield self._take()
        self._hold(rest)

    def finish(self) -> Iterator[str]:
        """What came after the last end of a line."""
        if self._held:
            yield self._take()

    def _hold(self, piece: bytes) -> None:
        # What a progress bar draws again replaces what it has drawn.
        again = piece.rstrip(b"\r").rpartition(b"\r")
        if again[1] or (piece.strip(b"\r") and self._held.endswith(b"\r")):
            self._held.clear()
            self._cut = 0
            piece = piece[len(again[0]) + len(again[1]) :]
        room = LONGEST - len(self._held)
        self._held += piece[:room]
        self._cut += max(0, len(piece) - room)

    def _take(self) -> str:
        text = self._held.decode("utf-8", "replace").rstrip("\r")
        cut, self._cut = self._cut, 0
        self._held.clear()
        return f"{text} … ({cut} more bytes)" if cut else text


def safe_line(text: str, *, colour: bool) -> str:
    """Without what moves the cursor or changes the terminal. Colours stay if they are shown."""
    if not colour:
        return strip_control(_ESCAPE.sub("", text))
    parts = _COLOUR.split(text)
    # Every second part is a colour.
    parts[::2] = [strip_control(_ESCAPE.sub("", part)) for part in parts[::2]]
    return "".join(parts) + (_RESET if len(parts) > 1 else "")
