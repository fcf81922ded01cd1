"""Signals that a process gets, on every platform."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence

END = ("SIGINT", "SIGTERM", "SIGBREAK")
"""The names of those that there are: SIGBREAK is how a process of Windows asks another one to end."""
_SAME_SIGNAL = 0.5
"""Seconds. A terminal and a parent process often both send the same signal: a repetition within this time is ignored."""


def on_each(names: Sequence[str], handler: Callable[[], None]) -> None:
    """Call `handler` for each of these signals; those that the platform does not have never come. Call it on the main thread's
    loop.
    """
    loop = asyncio.get_running_loop()

    def pass_on(*_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(handler)

    for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, pass_on)


def on_signals(first: Callable[[], None], again: Callable[[], None], names: Sequence[str] = END) -> None:
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

    on_each(names, on_signal)
