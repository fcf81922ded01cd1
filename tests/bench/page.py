"""docs/reference/benchmarks.md, written from one run."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from tests.bench import machine
from tests.bench.figures import Case, Row, markdown_table, table_of
from tests.bench.proxies import AGENT_PYTHON, ROOT

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
_LIBRARIES = ("hypercorn", "quart", "httptools", "uvloop", "aiosqlite")

_HEAD = """\
# Benchmarks

What the hub costs, beside nginx (a reverse proxy that only copies bytes: the floor) and beside a forwarding agent on the
official SDK (what people would write instead). All three stand in front of the same worker, in the same run, in turn.
This page is written by the run itself:

```
{command}
```
"""

_BODY = """\
## How it was measured

- {date}, revision {revision}; {machine}; load average {load:.1f} when the run began. Medians of {rounds} rounds; ± is half
  the range, as a share of the median. Figures of other machines differ, and so do their ratios a little.
- {versions}
- {pinning} CPU time is that of all threads of all processes of the one that is measured, from `/proc/*/task/*/schedstat`,
  divided by the calls or events that its client got.
- The worker and the client are small C programs (`tests/bench/c`). Every call is an A2A 0.3 call with a message id of its
  own and yields a new task. A stream is {events} events: a Task, artifact chunks of about 350 bytes, and the final status,
  each written by itself; the next stream begins when one has ended.
- The hub runs as `rolecall serve` with its defaults: SQLite on {disk}, `synchronous=FULL`; every event is on disk before
  the client sees it. nginx stores nothing, the agent keeps its tasks in memory.
- The hub calls a worker that can stream over `message/stream`, even where its caller made a plain call, so that the task
  can be watched and canceled while it runs. nginx and the agent pass the plain call on.
- Each measurement warms up over the connections that it then uses, until at least two calls for each of them have ended
  (the agent takes seconds from the first rush to its pace), and covers {seconds:g} s after that. With 50 ms between events,
  rates are what the worker's pace allows; look at the latency there, which is from the worker's write to the client's read.
- A round counts only if no call failed, hung or was cut; client and worker counted the same calls and the same events; no two
  calls got the same task; and, for the hub, exactly as many tasks were stored, with all their events. This run: {verdict}.
"""


def write(
    results: Sequence[tuple[Case, Sequence[Row]]],
    *,
    cores: machine.Cores,
    rounds: int,
    command: str,
    load: float,
    memory: dict[str, float],
) -> Path:
    parts = [_HEAD.format(command=command)]
    for case, made in results:
        parts.append(f"## {case.title}\n\n{markdown_table(table_of(case, made))}\n")
    held = ", ".join(f"{name} {size:.0f} MB" for name, size in memory.items())
    parts.append(f"Resident memory after the run (the agent keeps every task, the hub's are on disk): {held}.\n")
    pinning = (
        "What is measured has one core to itself; worker and client share the other."
        if cores.apart
        else "Only one core was there, and everything shared it: the figures are of little use."
    )
    parts.append(
        _BODY.format(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            revision=_revision(),
            machine=machine.describe(),
            load=load,
            rounds=rounds,
            versions=_versions(),
            pinning=pinning,
            events=max(case.events for case, _ in results),
            seconds=results[0][0].seconds,
            disk=machine.file_system(ROOT),
            verdict="all held",
        )
    )
    PAGE.write_text("\n".join(parts))
    return PAGE


def _versions() -> str:
    nginx = _said(["nginx", "-v"]).rpartition("/")[2] or "unknown"
    code = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('a2a-sdk', 'uvicorn', 'httpx')), sep=', ')"
    agent = _said([str(AGENT_PYTHON), "-c", code])
    own = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    return f"Python {platform.python_version()}; hub: {own}; agent: {agent}; nginx {nginx}."


def _revision() -> str:
    return _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]) or "unknown"


def _said(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()
