"""Lines that a person types, with history; or the lines of a pipe."""

from __future__ import annotations

import sys
from contextlib import suppress

from rolecall.cli.output import is_terminal, print_notice

with suppress(ImportError):  # Windows has none: then a line has no history
    import readline  # noqa: F401  `input` uses it


class Lines:
    def __init__(self) -> None:
        self.interactive = is_terminal(sys.stdin) and is_terminal(sys.stdout)

    def next(self, prompt: str) -> str | None:
        """None: there are no more. Ctrl-C leaves the line that is being typed."""
        while True:
            try:
                return input(prompt) if self.interactive else self._from_pipe()
            except EOFError:
                print_notice("")
                return None
            except KeyboardInterrupt:
                print_notice("\n(Ctrl-D leaves)", "dim")

    def _from_pipe(self) -> str | None:
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None
