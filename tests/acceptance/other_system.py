"""Runs a worker as on a system without what only Unix has: `python -m tests.acceptance.other_system worker run …`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

HIDDEN_MODULES = ("fcntl", "resource", "termios", "uvloop", "pwd", "grp")
HIDDEN_IN_OS = ("fork", "getuid", "statvfs", "pread", "pwrite", "killpg", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "dup")
HIDDEN_SIGNALS = ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGCHLD")


def remove_all() -> None:
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in HIDDEN_IN_OS:
        delattr(os, name)
    for name in HIDDEN_SIGNALS:
        delattr(signal, name)

    def refuse(self: object, *about: object) -> None:
        raise NotImplementedError

    asyncio.SelectorEventLoop.add_signal_handler = refuse  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    remove_all()
    from rolecall.cli import main

    main()
