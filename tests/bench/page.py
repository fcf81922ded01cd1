"""docs/reference/benchmarks.md and its picture, written from one run."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from tests.bench import machine
from tests.bench.figures import Section, page_table
from tests.bench.picture import graph_list, render
from tests.bench.proxies import AGENT_EXECUTABLE, CHANGED, OLD_AGENT_EXECUTABLE, ROOT
from tests.bench.targets import compared, table_of_targets

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
FIGURE_FILE = PAGE.with_suffix(".svg")
_LIBRARIES = ("hypercorn", "quart", "httptools", "uvloop", "aiosqlite")

_HEAD = """\
# Benchmarks

What the hub costs, compared with nginx (a reverse proxy that only copies bytes), with the floor (a bare relay in Python that
stores every event as durably as the hub and does nothing else: the least that the promise costs), and with forwarding agents on
the official SDK, versions 1.3.0 and 0.3.26 (the usual alternative). All of them forward to the same worker, in the same run,
in turn. The run itself writes this page:

```
{command}
```

![Bars on a logarithmic scale: CPU and rate of the hub, nginx, the floor and the agents]({picture})

## Targets

{targets}
"""

_BODY = """\
## How it was measured

- {date}, revision {revision}; {machine}; load average {load:.1f} when the run began. Medians of {rounds} rounds; ± is half
  the range, as a share of the median. Figures of other machines differ, and so do their ratios a little.
- {versions}
- {core_note} CPU time is that of all threads of all processes of the one that is measured, from `/proc/*/task/*/schedstat`,
  divided by the calls or events that its client got.
- The worker and the client are small C programs (`tests/bench/c`). Every call has its own message id and makes a new task.
  Calls and the worker are of A2A 0.3; in cases "from 0.3 to 1.0" every answer is translated. A stream is 20 events: a Task,
  artifact chunks of about 350 bytes, and the final status, each written separately, in turn with those of the other
  streams. The next stream begins when one has ended. Paced streams begin at different times and do not stay in step.
- The hub runs as `rolecall serve`: SQLite on {disk}, `synchronous=FULL`; every event is on disk before the client sees it.
  Every request has a token and is subject to the limits. Only `{changed}` is changed: one caller sends everything, more
  than one caller may, and there are no heartbeats except in the case with heartbeats. `hub-hypercorn` is the same hub, run as
  `hypercorn hub.asgi:app` on uvloop.
- The floor (`tests/bench/floor.py`) commits to SQLite with the settings and in the groups of the hub, and writes an event to
  the client after that. It has no tokens, limits, routing, back-pressure or recovery, and never reads what it has stored.
- nginx stores nothing and checks no token; the agents keep their tasks in memory. The agents are left out where events are
  paced, because they cannot keep that pace.
- The hub calls a worker that can stream over `message/stream`, even if the caller made a plain call, so that the task
  can be followed and canceled while it runs. nginx, the floor and the agents forward the plain call.
- Each measurement warms up over the connections that it then uses, until at least two calls for each of them have ended
  (the agents take seconds to reach their pace), and covers {seconds:g} s after that. With 100 ms between events,
  rates are what the worker's pace allows; look at the latency there, which is from the worker's write to the client's read.
- A round counts only if no call failed, hung or was cut; client and worker counted the same calls and the same events; no two
  calls got the same task; and, for the hub and the floor, exactly as many tasks were stored, with all their events. This run:
  all held.
"""


class Run(NamedTuple):
    cores: machine.Cores
    rounds: int
    seconds: float
    command: str
    load: float


def write(sections: Sequence[Section], run: Run) -> Path:
    values: dict[str, float] = {}
    for section in sections:
        values |= section.values
    FIGURE_FILE.write_text(render(graph_list(values, ("nginx", "floor", "hub", "hub-hypercorn", "sdk-0.3", "sdk-1.3"))))
    targets = page_table(table_of_targets(compared(sections)))
    parts = [_HEAD.format(command=run.command, picture=FIGURE_FILE.name, targets=targets)]
    for section in sections:
        note = f"\n\n{section.note}" if section.note else ""
        parts.append(f"## {section.title}{note}\n\n{page_table(section.table)}\n")
    core_note = (
        "The measured process has one core to itself; worker and client share the other."
        if run.cores.apart
        else "There was only one core, shared by everything: the figures are of little use."
    )
    parts.append(
        _BODY.format(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            revision=_revision(),
            machine=machine.describe(),
            load=run.load,
            rounds=run.rounds,
            versions=_versions(),
            core_note=core_note,
            changed=" ".join(f"{name}={value}" for name, value in CHANGED.items()),
            seconds=run.seconds,
            disk=machine.file_system(ROOT),
        )
    )
    PAGE.write_text("\n".join(parts))
    return PAGE


def _versions() -> str:
    nginx = _output_of(["nginx", "-v"]).rpartition("/")[2] or "unknown"
    code = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('a2a-sdk', 'uvicorn', 'httpx')), sep=', ')"
    agents = "; ".join(_output_of([str(python), "-c", code]) for python in (AGENT_EXECUTABLE, OLD_AGENT_EXECUTABLE))
    own = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    return f"Python {platform.python_version()}; hub: {own}; agents: {agents}; nginx {nginx}."


def _revision() -> str:
    return _output_of(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]) or "unknown"


def _output_of(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()
