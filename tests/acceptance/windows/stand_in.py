"""Makes a process like one on Windows, as far as Python code can tell.

What only Unix has is gone for everybody. Where our own packages ask, the platform is win32, so they take their branches for
Windows; all others are told the truth. A few things behave as there: locks, SIGBREAK, a SIGTERM that nobody can handle, files
that are open and cannot be deleted, files without O_BINARY. What this cannot show: the event loop of Windows, and its kernel.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[3]
SITE = Path(__file__).with_name("site")
ENV = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(SITE)))}
"""Of a process that is to be like one on Windows."""
OURS = ("hub", "rolecall", "worker_sdk")
_LOADED = (ssl, tempfile)
"""These and the others above choose what they use when they are imported: before anything is gone."""

HIDDEN_MODULES = ("fcntl", "resource", "termios", "tty", "pty", "uvloop", "pwd", "grp", "syslog")
HIDDEN_IN_OS = (
    *("fork", "forkpty", "wait", "wait3", "wait4", "waitid", "killpg", "setsid", "getsid", "getpgid", "getpgrp", "setpgid"),
    *(
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "getgroups",
        "setuid",
        "setgid",
        "chown",
        "lchown",
        "fchown",
        "fchmod",
        "fchdir",
    ),
    *(
        "statvfs",
        "fstatvfs",
        "pread",
        "pwrite",
        "preadv",
        "pwritev",
        "readv",
        "writev",
        "sendfile",
        "lockf",
        "fdatasync",
        "sync",
    ),
    *(
        "posix_fallocate",
        "posix_fadvise",
        "mkfifo",
        "mknod",
        "openpty",
        "ttyname",
        "pipe2",
        "nice",
        "getpriority",
        "getloadavg",
    ),
    *("uname", "sysconf", "pathconf", "sched_yield", "dup"),
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY"),
)
HIDDEN_IN_SIGNAL = (
    *("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGALRM", "SIGQUIT", "SIGPIPE", "SIGTSTP", "SIGSTOP", "SIGCONT"),
    *("alarm", "setitimer", "pause", "pthread_sigmask", "sigwait", "siginterrupt"),
)
HIDDEN_IN_SOCKET = ("SO_REUSEPORT", "TCP_USER_TIMEOUT", "SCM_RIGHTS", "send_fds", "recv_fds")
BREAK = signal.SIGUSR2
"""Stands for SIGBREAK."""
O_BINARY = 1 << 30


def become_windows() -> None:
    _add_locks()
    _add_signals()
    _add_sockets()
    _add_files()
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, HIDDEN_IN_OS), (signal, HIDDEN_IN_SIGNAL), (socket, HIDDEN_IN_SOCKET)):
        for name in names:
            delattr(module, name)
    _show_platform()


# --- the platform


class _Platform(ModuleType):
    """`sys` for our packages."""

    platform = "win32"

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(sys, name, value)


def _show_platform() -> None:
    here, load, platform = sys.platform, SourceFileLoader.exec_module, _Platform("sys")

    def exec_module(source: SourceFileLoader, module: ModuleType) -> None:
        ours = module.__name__.partition(".")[0] in OURS
        before, sys.platform = sys.platform, "win32" if ours else here
        try:
            load(source, module)
        finally:
            sys.platform = before
        if ours and vars(module).get("sys") is sys:
            vars(module)["sys"] = platform

    SourceFileLoader.exec_module = exec_module  # type: ignore[method-assign]


# --- what behaves as on Windows


def _add_locks() -> None:
    flock, take, give_up = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN

    def lock(number: int, mode: int, size: int) -> None:
        try:
            flock(number, take if mode else give_up)
        except OSError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module = sys.modules["msvcrt"] = ModuleType("msvcrt")
    vars(module).update(LK_UNLCK=0, LK_LOCK=1, LK_NBLCK=2, locking=lock)


def _add_signals() -> None:
    handle: Any = signal.signal

    def handle_others(number: int, handler: Any) -> Any:
        return None if number == signal.SIGTERM else handle(number, handler)

    def refuse(self: object, *about: object) -> None:
        raise NotImplementedError

    known = {"SIGBREAK": BREAK, "CTRL_BREAK_EVENT": BREAK, "CTRL_C_EVENT": signal.SIGINT, "signal": handle_others}
    vars(signal).update(known)
    asyncio.SelectorEventLoop.add_signal_handler = refuse  # type: ignore[method-assign,assignment]
    subprocess.Popen.kill = subprocess.Popen.terminate  # type: ignore[method-assign]
    vars(subprocess).update(CREATE_NEW_PROCESS_GROUP=0)


def _add_sockets() -> None:
    """Connections that have just ended do not keep a port."""
    bind: Any = socket.socket.bind

    def bind_again(own: socket.socket, address: Any) -> None:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind(own, address)

    socket.socket.bind = bind_again  # type: ignore[method-assign,assignment]


def _add_files() -> None:
    """Binary files have to be opened as such, only what can be written can be synced, and nobody deletes an open file."""
    system: Any = os
    system.O_BINARY = O_BINARY
    text = set[int]()
    open_, close, write, fsync, flags_of = os.open, os.close, os.write, os.fsync, fcntl.fcntl
    get_flags, volume = fcntl.F_GETFL, os.statvfs

    def opened(path: Any, flags: int, *rest: Any, **about: Any) -> int:
        number = open_(path, flags & ~O_BINARY, *rest, **about)
        if not flags & O_BINARY:
            text.add(number)
        return number

    def closed(number: int) -> None:
        text.discard(number)
        close(number)

    def written(number: int, data: Any) -> int:
        if number in text and b"\n" in bytes(data):
            write(number, bytes(data).replace(b"\n", b"\r\n"))
            return len(data)
        return write(number, data)

    def synced(number: int) -> None:
        if flags_of(number, get_flags) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fsync(number)

    def unless_open(work: Callable[..., None]) -> Callable[..., None]:
        def checked(*paths: Any, **about: Any) -> None:
            for path in paths:
                if os.path.realpath(path) in _open_here():
                    raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
            work(*paths, **about)

        return checked

    system.open, system.close, system.write, system.fsync = opened, closed, written, synced
    for name in ("unlink", "remove", "rename", "replace"):
        setattr(os, name, unless_open(getattr(os, name)))

    def disk_usage(path: Any) -> Any:
        found = volume(path)
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
        return vars(shutil)["_ntuple_diskusage"](total, total - free, free)

    vars(shutil).update(disk_usage=disk_usage, _use_fd_functions=False)


def _open_here() -> set[str]:
    found = set[str]()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # that of the list itself
    return found
