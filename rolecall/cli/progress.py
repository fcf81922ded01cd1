"""How far a task is, as a bar in the last line of a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from rolecall.cli.output import has_colour, strip_control
from worker_sdk.words import Message, Progress, progress_of

_WIDTH = 20


class ProgressLine:
    """Shown in place, and cleared before anything else is printed."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shown = False

    def show(self, message: dict[str, Any], text: str) -> bool:
        """False: the message says nothing of progress, or the terminal cannot show it in place."""
        progress = progress_of(Message(message))
        if progress is None or self._quiet or not has_colour(sys.stderr):
            return False
        line = strip_control(f"{_drawn(progress)}  {text}").replace("\n", " ")
        click.echo(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}", nl=False, err=True)
        self._shown = True
        return True

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._shown = False


def _drawn(progress: Progress) -> str:
    if not progress.total or progress.total <= 0:
        return f"{progress.done:g}"
    part = min(1.0, max(0.0, progress.done / progress.total))
    filled = round(part * _WIDTH)
    return f"{'█' * filled}{'░' * (_WIDTH - filled)} {part:4.0%}"
