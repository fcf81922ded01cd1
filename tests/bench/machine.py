"""Processes and the machine. Linux only, because it needs `/proc` and CPU pinning."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_STOP_AFTER = 10.0


@dataclass(frozen=True, slots=True)
class Cores:
    """One core for the measured process, another for the client and the worker."""

    measured: int
    load: int

    @classmethod
    def choose(cls) -> Cores:
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[-1], usable[0])

    @property
    def apart(self) -> bool:
        return self.measured != self.load


@dataclass(frozen=True, slots=True)
class RestRoute:
    """The folder of a run, its cores, and what is closed at its end."""

    folder: Path
    cores: Cores
    closing: ExitStack

    def start(
        self,
        argv: Sequence[str | Path],
        *,
        log: str,
        measured: bool = True,
        stdin: int | None = subprocess.DEVNULL,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """A process on one core. At the end it gets SIGTERM, then SIGKILL."""
        core = self.cores.measured if measured else self.cores.load
        with (self.folder / f"{log}.err").open("a") as errors:
            process = subprocess.Popen(
                [str(part) for part in argv],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=cwd,
                env=env,
                preexec_fn=lambda: os.sched_setaffinity(0, {core}),
            )
        self.closing.callback(_end, process)
        return process


def first_line(process: subprocess.Popen[str]) -> str:
    """The line that a process prints when it is ready. An end without one is an error."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{process.args!r} ended before it was ready: see its log.")
    return line


def expect(process: subprocess.Popen[str], word: str) -> None:
    if first_line(process) != word:
        raise SystemExit(f"{process.args!r} did not reach {word!r}: see its log.")


def send_line(process: subprocess.Popen[str], words: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(words + "\n")
    process.stdin.flush()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of this process, its descendants and all their threads."""
    return sum(_task_time(task) for process in family(pid) for task in Path(f"/proc/{process}/task").iterdir()) / 1e9


def family(pid: int) -> list[int]:
    found, queue = [], [pid]
    while queue:
        process = queue.pop()
        found.append(process)
        for task in Path(f"/proc/{process}/task").iterdir():
            queue += [int(child) for child in (task / "children").read_text().split()]
    return found


def age(pid: int) -> float:
    """Seconds since a process was started, to a hundredth."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Resident bytes of this process and its descendants."""
    page_count = sum(int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in family(pid))
    return page_count * os.sysconf("SC_PAGE_SIZE")


def describe() -> str:
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GB, Linux {platform.release()}"


def system_load() -> float:
    return os.getloadavg()[0]


def file_system(path: Path) -> str:
    """The type of the path's file system: a sync on a RAM disk does nothing."""
    best = ("", "unknown")
    for line in _lines("/proc/mounts"):
        _, mount, kind, *_ = line.split()
        if str(path.resolve()).startswith(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _task_time(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # the thread has just ended


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_AFTER)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
