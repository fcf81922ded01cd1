"""What the benchmark knows of processes and of the machine. Linux only, as `/proc` and pinning are."""

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
    """One core for what is measured, another for what calls it and what it calls."""

    measured: int
    rig: int

    @classmethod
    def choose(cls) -> Cores:
        usable = sorted(os.sched_getaffinity(0))
        return cls(usable[-1], usable[0])

    @property
    def apart(self) -> bool:
        return self.measured != self.rig


@dataclass(frozen=True, slots=True)
class RestRoute:
    """Where a run's files lie, which core is whose, and what ends with it."""

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
        """A process on one core, ended with the place: asked first, then forced."""
        core = self.cores.measured if measured else self.cores.rig
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
    """What a process says once it is ready. Its end without a word is an error."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{process.args!r} ended before it was ready: see its log.")
    return line


def expect(process: subprocess.Popen[str], word: str) -> None:
    if first_line(process) != word:
        raise SystemExit(f"{process.args!r} did not come as far as {word!r}: see its log.")


def tell(process: subprocess.Popen[str], words: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(words + "\n")
    process.stdin.flush()


def cpu_seconds(pid: int) -> float:
    """What this process, its descendants and all their threads have used."""
    return sum(_task_nanoseconds(task) for each in family(pid) for task in Path(f"/proc/{each}/task").iterdir()) / 1e9


def family(pid: int) -> list[int]:
    found, queue = [], [pid]
    while queue:
        each = queue.pop()
        found.append(each)
        for task in Path(f"/proc/{each}/task").iterdir():
            queue += [int(child) for child in (task / "children").read_text().split()]
    return found


def age(pid: int) -> float:
    """Seconds since a process was started, to a hundredth."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Resident bytes of this process and its descendants."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in family(pid))
    return pages * os.sysconf("SC_PAGE_SIZE")


def describe() -> str:
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return f"{os.cpu_count()} cores ({model}), {gigabytes:.0f} GB, Linux {platform.release()}"


def load_average() -> float:
    return os.getloadavg()[0]


def file_system(path: Path) -> str:
    """The type of the file system that a path lies on: a sync on a RAM disk is none."""
    best = ("", "unknown")
    for line in _lines("/proc/mounts"):
        _, mount, kind, *_ = line.split()
        if str(path.resolve()).startswith(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _task_nanoseconds(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # a thread that has just ended


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
