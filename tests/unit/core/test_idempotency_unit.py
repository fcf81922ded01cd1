"""Which calls are in memory: those that are being admitted or run. The store knows the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from hub.core.admission.idempotency import Call, CallNames, Find, Idempotency
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from hub.core.tasks.lookup import TaskLookup
from hub.storage.memory.engine import MemoryEngine
from rolecall.model.call import CallName
from rolecall.model.ids import START, TaskId
from tests.contract.words import ANNA
from tests.flow.conftest import say
from tests.helpers.clock import ManualClock


class RunningRelay:
    """What a call sees of its relay."""

    over = False

    def __init__(self) -> None:
        self.when_over: list[Callable[[], None]] = []


class Kept:
    def __init__(self) -> None:
        clock = ManualClock()
        tasks = MemoryEngine(clock).tasks
        self.idempotency = Idempotency(tasks, cast(Relays, None), TaskLookup(tasks), clock, timedelta(seconds=60))
        self.begun = 0

    async def send(self, name: bytes, relay: Any) -> None:
        async def start(find: Find) -> Call:
            self.begun += 1
            await asyncio.sleep(0)
            return Call(TaskId("t"), "echo", START, cast(Relay, relay))

        await self.idempotency.once(ANNA, say(), CallNames(CallName(name), None, (CallName(name),), ()), start)


async def test_calls_that_have_ended_are_not_kept_in_memory() -> None:
    kept = Kept()
    for number in range(100):
        await kept.send(b"%d" % number, None)
    assert (len(kept.idempotency), kept.begun) == (0, 100)


async def test_a_call_is_kept_while_its_relay_runs() -> None:
    kept, relay = Kept(), RunningRelay()
    await asyncio.gather(*(kept.send(b"a", relay) for _ in range(5)))
    await kept.send(b"a", relay)
    assert (len(kept.idempotency), kept.begun) == (1, 1)
    for over in relay.when_over:
        over()
    assert len(kept.idempotency) == 0
