"""A refused call leaves nothing in the hub: neither in its tables, nor for the garbage collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from hub.core.relay.relay import Relay
from rolecall.errors import HubError, Overloaded, WorkerFault, WorkerFull, WorkerRefused, WorkerUnreachable
from tests.flow.conftest import CALLER, System, frames, say, shares
from tests.helpers.cycles import no_cycles_of

REFUSALS: dict[str, Callable[[], HubError]] = {
    "unreachable": lambda: WorkerUnreachable("echo:a", "http://w/", "connection refused"),
    "no connection": lambda: Overloaded("connections to workers", 3, "max_worker_connections"),
    "full": lambda: WorkerFull("echo:a", 3),
    "refused": lambda: WorkerRefused("echo:a"),
    "an error": lambda: WorkerFault(-32602, "no"),
}
"""Each makes a new one: nothing but the hub may keep it."""


@pytest.mark.parametrize("refusal", [*REFUSALS, "not stored"])
async def test_a_refused_call_is_freed_at_once(stored_system: System, refusal: str) -> None:
    system = stored_system
    await system.enrol("echo:a")
    if refusal == "not stored":
        system.with_bounds(shares=shares(open_tasks=0))

    async def refused(*, streams: bool) -> None:
        if refusal in REFUSALS:
            system.forwarder.plan("echo:a", REFUSALS[refusal]())
        with suppress(HubError):
            await (frames(await system.hub.stream(CALLER, say())) if streams else system.send())
            raise AssertionError("it was not refused")

    await refused(streams=True)
    with no_cycles_of(Relay, HubError):
        for number in range(10):
            await refused(streams=number % 2 == 0)
        await asyncio.sleep(1)
    assert await system.rows() == []
    assert (len(system.hub.relays), system.deps.shares.open_tasks.use.used) == (0, 0)


async def test_the_repeats_of_a_refused_message_are_freed_at_once(system: System) -> None:
    await system.enrol("echo:a")
    with no_cycles_of(Relay, HubError):
        for _ in range(5):
            system.forwarder.plan("echo:a", 0.5, REFUSALS["no connection"]())
            same = say()
            answers = await asyncio.gather(*(system.hub.send(CALLER, same) for _ in range(5)), return_exceptions=True)
            assert {type(answer) for answer in answers} == {Overloaded}
            assert len({id(answer) for answer in answers}) == 5
            del answers
        await asyncio.sleep(1)
