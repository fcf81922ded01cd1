"""Signals that end a process, on every platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

END = ("SIGINT", "SIGTERM", "SIGBREAK")
"""The names of those that there are: SIGBREAK is how a process of Windows asks another one to end."""
_SAME_SIGNAL = 0.5
"""Seconds. A terminal and a parent process often both send the same signal: a repetition within this time is ignored."""


def on_signals(first: Callable[[], None], again: Callable[[], None], names: tuple[str, ...] = END) -> None:
    """Call `first` for the first of these signals, and `again` for each later one. Call it on the main thread's loop."""
    loop = asyncio.get_running_loop()
    came = 0.0

    def on_signal() -> None:
        nonlocal came
        if not came:
            came = loop.time()
            first()
        elif loop.time() - came >= _SAME_SIGNAL:
            again()

    for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
        try:
            loop.add_signal_handler(number, on_signal)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_signal))
