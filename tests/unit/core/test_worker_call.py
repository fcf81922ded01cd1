"""What is open towards a worker, with a scripted one on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from hub.core.relay.transitions import Trigger
from hub.core.relay.worker_call import WorkerCall, trigger_of
from hub.core.supervisor import Supervisor
from hub.ports.forwarder import Attach
from rolecall.errors import (
    HubDraining,
    HubError,
    InvalidAnswer,
    Overloaded,
    WorkerBroke,
    WorkerFault,
    WorkerFull,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.ids import WorkerId, new_task_id
from rolecall.model.worker import Offer
from tests.helpers.scripted import ScriptedForwarder, chunk, task

OFFER = Offer(WorkerId("echo", "a"), "http://w/echo:a", streaming=True)
IDS = Ids(new_task_id(), "c", "wt", "wc", "0.3")


pytestmark = pytest.mark.virtual_time


class Setup:
    def __init__(self, supervisor: Supervisor) -> None:
        self.forwarder = ScriptedForwarder()
        self.posted: list[tuple[Trigger, Any]] = []
        self.signs_of_life = 0
        inline: Any = None  # of a message with files: see tests/flow/test_files_by_reference.py
        self.call = WorkerCall(self.forwarder, inline, "default", supervisor, self)

    def attach(self, *steps: Any) -> None:
        self.forwarder.plan("echo:a", *steps)
        self.call.attach(OFFER, Attach(IDS, None))

    @property
    def triggers(self) -> list[Trigger]:
        return [trigger for trigger, _ in self.posted]

    def post(self, trigger: Trigger, payload: Any = None) -> None:
        self.posted.append((trigger, payload))

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        self.signs_of_life += 1
        if batch:
            self.post(Trigger.RECEIVED, batch)

    def closed(self, error: HubError | None) -> None:
        self.call.closed()
        self.post(trigger_of(error), error)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    supervisor = Supervisor()
    setup = Setup(supervisor)
    yield setup
    setup.call.hang_up()
    await supervisor.close()


async def test_events_and_the_proper_end_are_posted_in_order(setup: Setup) -> None:
    setup.attach(task(), chunk("x"))
    assert setup.call.streams
    await asyncio.sleep(1)
    assert setup.triggers == [Trigger.RECEIVED, Trigger.RECEIVED, Trigger.CLOSED]
    assert not setup.call.streams


async def test_the_head_of_an_answer_is_a_sign_of_life_and_no_trigger(setup: Setup) -> None:
    setup.attach(60.0, task())
    await asyncio.sleep(1)
    assert (setup.signs_of_life, setup.posted) == (1, [])


@pytest.mark.parametrize(
    ("error", "trigger"),
    [
        (WorkerUnreachable("echo:a", "http://w", "refused"), Trigger.UNREACHABLE),
        (WorkerRefused("echo:a"), Trigger.DECLINED),
        (WorkerFull("echo:a", 1), Trigger.FULL),
        (Overloaded("connections to workers", 1, "max_worker_connections"), Trigger.NO_CONNECTION),
        (WorkerBroke("echo:a", "cut"), Trigger.CUT),
        (InvalidAnswer("echo:a", "no JSON"), Trigger.INVALID),
        (WorkerFault(-32603, "sorry"), Trigger.FAULT),
        (HubDraining(), Trigger.GIVE_UP),
    ],
)
async def test_each_failure_is_a_trigger_of_its_own(setup: Setup, error: HubError, trigger: Trigger) -> None:
    setup.attach(error)
    setup.forwarder.plan_fetch("echo:a", error)
    setup.call.poll(OFFER, IDS, after=0.5)
    await asyncio.sleep(1)
    assert setup.posted == [(trigger, error), (trigger, error)]


async def test_a_paused_call_posts_nothing_until_it_is_resumed(setup: Setup) -> None:
    setup.attach(task(), chunk("x"), chunk("y"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    setup.call.pause()
    await asyncio.sleep(5)
    assert len(setup.posted) <= 1
    setup.call.resume()
    await asyncio.sleep(1)
    assert setup.triggers == [Trigger.RECEIVED] * 3 + [Trigger.CLOSED]


@pytest.mark.parametrize("closed", [True, False])
async def test_the_call_after_a_paused_one_can_be_paused_and_resumed(setup: Setup, closed: bool) -> None:
    setup.attach(*((WorkerBroke("echo:a", "cut"),) if closed else (60.0,)))
    setup.call.pause()
    if closed:
        setup.call.resume()
        await asyncio.sleep(1)
    else:
        setup.call.hang_up()
    setup.posted.clear()
    setup.attach(0.5, task())
    setup.call.pause()
    await asyncio.sleep(5)
    assert setup.posted == []
    setup.call.resume()
    await asyncio.sleep(1)
    assert setup.triggers == [Trigger.RECEIVED, Trigger.CLOSED]


async def test_nothing_is_posted_after_hanging_up(setup: Setup) -> None:
    setup.attach(0.5, task())
    setup.forwarder.plan_fetch("echo:a", task())
    setup.call.poll(OFFER, IDS, after=0.5)
    setup.call.retry(after=0.5)
    setup.call.hang_up()
    await asyncio.sleep(5)
    assert setup.posted == []
    assert setup.forwarder.left == ["echo:a"]


async def test_a_poll_waits_and_posts_the_workers_task(setup: Setup) -> None:
    setup.forwarder.plan_fetch("echo:a", task("completed"))
    setup.call.poll(OFFER, IDS, after=2.0)
    await asyncio.sleep(1.9)
    assert setup.posted == []
    await asyncio.sleep(0.2)
    ((trigger, (worker_event,)),) = setup.posted
    assert trigger is Trigger.RECEIVED
    assert worker_event.state == "completed"


async def test_a_pause_ends_with_a_retry(setup: Setup) -> None:
    setup.call.retry(after=0.25)
    await asyncio.sleep(0.2)
    assert setup.posted == []
    await asyncio.sleep(0.1)
    assert setup.posted == [(Trigger.RETRY, None)]
