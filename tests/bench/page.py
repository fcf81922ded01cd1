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
from tests.bench.figures import Section, markdown_table
from tests.bench.picture import draw, panels
from tests.bench.proxies import AGENT_PYTHON, CHANGED, OLD_AGENT_PYTHON, ROOT
from tests.bench.targets import compared, table_of_targets

PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
PICTURE = PAGE.with_suffix(".svg")
_LIBRARIES = ("hypercorn", "quart", "httptools", "uvloop", "aiosqlite")

_HEAD = """\
# Benchmarks

What the hub costs, beside nginx (a reverse proxy that only copies bytes: the floor) and beside forwarding agents on the
official SDK, versions 1.3.0 and 0.3.26 (what people would write instead). All stand in front of the same worker, in the same
run, in turn. This page is written by the run itself:

```
{command}
```

![Bars on a logarithmic scale: CPU and rate of the hub, nginx and the agents]({picture})

## Targets

{targets}
"""

_BODY = """\
## How it was measured

- {date}, revision {revision}; {machine}; load average {load:.1f} when the run began. Medians of {rounds} rounds; ± is half
  the range, as a share of the median. Figures of other machines differ, and so do their ratios a little.
- {versions}
- {pinning} CPU time is that of all threads of all processes of the one that is measured, from `/proc/*/task/*/schedstat`,
  divided by the calls or events that its client got.
- The worker and the client are small C programs (`tests/bench/c`). Every call has a message id of its own and yields a new
  task. Calls are of A2A 0.3, and so is the worker, but where "from 0.3 to 1.0" says that every answer is translated. A stream
  is 20 events: a Task, artifact chunks of about 350 bytes, and the final status, each written by itself, in turn
  with those of the other streams; the next stream begins when one has ended. Paced streams begin at different moments, and
  do not stay in step.
- The hub runs as `rolecall serve`: SQLite on {disk}, `synchronous=FULL`; every event is on disk before the client sees it.
  Every request shows a token and is held to the limits. Changed are but `{changed}`: one caller sends everything, and more
  than one may; and nobody sends heartbeats, but where it says so. `hub-hypercorn` is the same on Hypercorn as it comes.
- nginx stores nothing and asks nobody; the agents keep their tasks in memory. They are left out where events are paced: they
  cannot keep that pace.
- The hub calls a worker that can stream over `message/stream`, even where its caller made a plain call, so that the task
  can be watched and canceled while it runs. nginx and the agents pass the plain call on.
- Each measurement warms up over the connections that it then uses, until at least two calls for each of them have ended
  (the agents take seconds from the first rush to their pace), and covers {seconds:g} s after that. With 100 ms between events,
  rates are what the worker's pace allows; look at the latency there, which is from the worker's write to the client's read.
- A round counts only if no call failed, hung or was cut; client and worker counted the same calls and the same events; no two
  calls got the same task; and, for the hub, exactly as many tasks were stored, with all their events. This run: all held.
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
    PICTURE.write_text(draw(panels(values, ("nginx", "hub", "hub-hypercorn", "sdk-0.3", "sdk-1.3"))))
    targets = markdown_table(table_of_targets(compared(sections)))
    parts = [_HEAD.format(command=run.command, picture=PICTURE.name, targets=targets)]
    for section in sections:
        note = f"\n\n{section.note}" if section.note else ""
        parts.append(f"## {section.title}{note}\n\n{markdown_table(section.table)}\n")
    pinning = (
        "What is measured has one core to itself; worker and client share the other."
        if run.cores.apart
        else "Only one core was there, and everything shared it: the figures are of little use."
    )
    parts.append(
        _BODY.format(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            revision=_revision(),
            machine=machine.describe(),
            load=run.load,
            rounds=run.rounds,
            versions=_versions(),
            pinning=pinning,
            changed=" ".join(f"{name}={value}" for name, value in CHANGED.items()),
            seconds=run.seconds,
            disk=machine.file_system(ROOT),
        )
    )
    PAGE.write_text("\n".join(parts))
    return PAGE


def _versions() -> str:
    nginx = _said(["nginx", "-v"]).rpartition("/")[2] or "unknown"
    code = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('a2a-sdk', 'uvicorn', 'httpx')), sep=', ')"
    agents = "; ".join(_said([str(python), "-c", code]) for python in (AGENT_PYTHON, OLD_AGENT_PYTHON))
    own = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    return f"Python {platform.python_version()}; hub: {own}; agents: {agents}; nginx {nginx}."


def _revision() -> str:
    return _said(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]) or "unknown"


def _said(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()
