"""What people read when they end a console: what still runs, and what is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rolecall.cli.connect import open_hub
from rolecall.cli.console.hub_choice import ChosenHub
from rolecall.cli.console.programs import Program
from rolecall.cli.output import counted
from rolecall.cli.tasks.lists import tasks
from rolecall.model.a2a import PAUSED, TaskState
from worker_sdk import RolecallError

_PATIENCE = 1.0
_UNFINISHED = ",".join((TaskState.SUBMITTED, TaskState.WORKING, *sorted(PAUSED)))


class Unfinished(NamedTuple):
    """Tasks of these programs, as far as the token sees them. `waiting`: for a person, where they end with their worker."""

    running: int = 0
    waiting: int = 0


async def unfinished(hub: ChosenHub, programs: Sequence[Program]) -> Unfinished:
    """Nothing where the hub does not tell in time."""
    counts: Counter[bool] = Counter()
    try:
        async with asyncio.timeout(_PATIENCE), open_hub(hub.caller_address) as api:
            async for task in tasks(api, state=_UNFINISHED):
                program = next((one for one in programs if one.is_worker(str(task.get("worker")))), None)
                # A server that is announced may keep its questions.
                if program is not None and (task["state"] not in PAUSED or program.enrols):
                    counts[task["state"] in PAUSED] += 1
    except (RolecallError, TimeoutError):
        return Unfinished()
    return Unfinished(counts[False], counts[True])


def stopping_line(found: Unfinished, *, own_hub: bool, whose: str = "") -> str:
    """`whose`: of whom these tasks are, where the hub tells of no others."""
    running = f"{counted(found.running, 'task')}{whose} still run{'s' if found.running == 1 else ''}, and may finish"
    waiting = f"{counted(found.waiting, 'task')}{whose} wait{'s' if found.waiting == 1 else ''} for a person, and will end"
    texts = [text for text, count in ((running, found.running), (waiting, found.waiting)) if count]
    then = "; then the hub ends" if own_hub else ""
    return f"stopping: {'; '.join(texts) or 'the workers finish what they do'}{then} (Ctrl-C again: at once)"
