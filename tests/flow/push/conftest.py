"""Running deliveries on the system's store, receivers on real sockets, and a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from hub.core.observe import NullObserver
from hub.core.push.configs import PushConfigs
from hub.core.push.deliveries import Deliveries, DeliveryPolicy
from hub.core.supervisor import Supervisor
from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.state.event_log import LogEntry
from rolecall.model.a2a import Event
from rolecall.model.ids import Caller, TaskId
from rolecall.model.push import PushConfig
from tests.contract.words import a_row, a_turn
from tests.flow.conftest import CALLER, System
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import status, task
from tests.helpers.watched_engine import append_to

QUICK = DeliveryPolicy(look_every=0.02)
HOSTS = ("127.0.0.1", "localhost")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Real time, because sockets are real."""
    return {"real": asyncio.SelectorEventLoop}


@dataclass
class Count(NullObserver):
    outcomes: list[str] = field(default_factory=list)
    lag_times: list[float] = field(default_factory=list)

    def pushed(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def push_caught_up(self, seconds: float) -> None:
        self.lag_times.append(seconds)


@dataclass
class Post:
    """The running deliveries of a hub on the system's store."""

    system: System
    client: Client
    guard: WebhookGuard
    observer: Count
    vault: SealingVault
    push: PushConfigs
    deliveries: Deliveries
    supervisor: Supervisor

    def other(self, policy: DeliveryPolicy = QUICK, **changed: Any) -> Post:
        """Another hub on the same store."""
        return post_of(self.system, self.client, self.guard, policy, vault=self.vault, **changed)

    async def set(self, task: TaskId, url: str, name: str = "c", **members: Any) -> PushConfig:
        return await self.push.set(CALLER, PushConfig(task, name, url, members.pop("dialect", "1.0"), **members))


def post_of(
    system: System, client: Client, guard: WebhookGuard, policy: DeliveryPolicy = QUICK, *, vault: SealingVault, **changed: Any
) -> Post:
    observer, supervisor = Count(), Supervisor()
    deps = replace(system.deps, observer=observer, **changed)
    webhooks = HttpWebhooks(client, guard, system.clock.wall, within=1.0)
    deliveries = Deliveries(deps, webhooks, vault, supervisor, policy, rng=lambda: 0.5)
    push = PushConfigs(deps.engine.pushes, webhooks, vault, deliveries, limit=10)
    supervisor.keep_running("push", deliveries.run)
    return Post(system, client, guard, observer, vault, push, deliveries, supervisor)


@pytest.fixture
async def post(system: System) -> AsyncIterator[Post]:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(system, client, guard, vault=SealingVault(random_key()))
        yield post
        await post.supervisor.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


async def until(holds: Callable[[], bool], timeout: float = 10) -> None:
    async with asyncio.timeout(timeout):
        while not holds():  # noqa: ASYNC110  the awaited event happens at the other end of a socket
            await asyncio.sleep(0.005)


async def advance_until(post: Post, holds: Callable[[], bool], step: float = 1.0) -> None:
    """Advance the clock until it holds."""
    async with asyncio.timeout(20):
        while not holds():
            post.system.clock.advance(step)
            await asyncio.sleep(0.03)


async def still_holds(holds: Callable[[], bool], seconds: float = 0.15) -> None:
    """Assert that it holds for some turns of the loop."""
    for _ in range(10):
        assert holds()
        await asyncio.sleep(seconds / 10)


async def a_task(system: System, caller: Caller = CALLER) -> TaskId:
    row = a_row(caller)
    turn = a_turn(
        params=b'{"message":{"messageId":"m-1","role":"user","kind":"message","parts":[{"kind":"text","text":"hi"}]}}'
    )
    await system.engine.tasks.admit(row, turn)
    return row.id


async def logged(system: System, task: TaskId, *worker_event: Any, caller: Caller = CALLER) -> None:
    """Append the events of a worker."""
    codec, row = system.deps.codec, await system.engine.tasks.get(caller, task)
    turn = (await system.engine.tasks.turns(task))[0]
    events: list[Event] = []
    for one in worker_event:
        first = row.at == 0 and not events
        events += codec.begin(one, row.ids, turn) if first else [codec.adopt(one, row.ids)]
    files = [file for event in events for file in codec.files_in(event.body, event.dialect)]
    await append_to(system.engine.events, task, LogEntry(events, None, row.ids, files), after=row.at)


async def dead(post: Post) -> list[tuple[str, int, str]]:
    return [(letter.config, letter.cursor, letter.reason) for letter in (await post.push.dead_letters(CALLER)).letters]


DONE = status("completed", "done")
BODY_COMPLETE = task("completed")
"""A whole task in one event."""
