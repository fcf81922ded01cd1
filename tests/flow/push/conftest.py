"""A delivery at work on the house's store, receivers on real sockets, and a clock that tests move."""

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
from hub.ports.event_log import LogEntry
from rolecall.model.a2a import Event
from rolecall.model.ids import Caller, TaskId
from rolecall.model.push import PushConfig
from tests.contract.words import a_row, a_turn
from tests.flow.conftest import ME, House
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import status, task

QUICK = DeliveryPolicy(look_every=0.02)
HOSTS = ("127.0.0.1", "localhost")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Real time: what goes over sockets takes some."""
    return {"real": asyncio.SelectorEventLoop}


@dataclass
class Count(NullObserver):
    outcomes: list[str] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def pushed(self, outcome: str) -> None:
        self.outcomes.append(outcome)

    def push_caught_up(self, seconds: float) -> None:
        self.lags.append(seconds)


@dataclass
class Post:
    """A hub's delivery at work on the house's store."""

    house: House
    client: Client
    guard: WebhookGuard
    observer: Count
    vault: SealingVault
    push: PushConfigs
    deliveries: Deliveries
    supervisor: Supervisor

    def other(self, pace: DeliveryPolicy = QUICK, **changed: Any) -> Post:
        """One more hub on the same store."""
        return post_of(self.house, self.client, self.guard, pace, vault=self.vault, **changed)

    async def set(self, task: TaskId, url: str, name: str = "c", **members: Any) -> PushConfig:
        return await self.push.set(ME, PushConfig(task, name, url, members.pop("dialect", "0.3"), **members))


def post_of(
    house: House, client: Client, guard: WebhookGuard, pace: DeliveryPolicy = QUICK, *, vault: SealingVault, **changed: Any
) -> Post:
    observer, supervisor = Count(), Supervisor()
    deps = replace(house.deps, observer=observer, **changed)
    webhooks = HttpWebhooks(client, guard, house.clock.wall, within=1.0)
    deliveries = Deliveries(deps, webhooks, vault, supervisor, pace, rng=lambda: 0.5)
    push = PushConfigs(deps.engine.pushes, webhooks, vault, deliveries, most=10)
    supervisor.keep_running("push", deliveries.run)
    return Post(house, client, guard, observer, vault, push, deliveries, supervisor)


@pytest.fixture
async def post(house: House) -> AsyncIterator[Post]:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(house, client, guard, vault=SealingVault(random_key()))
        yield post
        await post.supervisor.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as receiver:
        yield receiver


async def until(holds: Callable[[], bool], timeout: float = 10) -> None:
    async with asyncio.timeout(timeout):
        while not holds():  # noqa: ASYNC110  what is waited for happens at the other end of a socket
            await asyncio.sleep(0.005)


async def retried(post: Post, holds: Callable[[], bool], step: float = 1.0) -> None:
    """Time passes, until it holds."""
    async with asyncio.timeout(20):
        while not holds():
            post.house.clock.advance(step)
            await asyncio.sleep(0.03)


async def stays(holds: Callable[[], bool], seconds: float = 0.15) -> None:
    """Some rounds of the loop, and still."""
    for _ in range(10):
        assert holds()
        await asyncio.sleep(seconds / 10)


async def a_task(house: House, caller: Caller = ME) -> TaskId:
    row = a_row(caller)
    turn = a_turn(
        params=b'{"message":{"messageId":"m-1","role":"user","kind":"message","parts":[{"kind":"text","text":"hi"}]}}'
    )
    await house.engine.tasks.admit(row, turn)
    return row.id


async def logged(house: House, task: TaskId, *worker_event: Any) -> None:
    """Append what a worker said."""
    codec, row = house.deps.codec, await house.engine.tasks.get(ME, task)
    turn = (await house.engine.tasks.turns(task))[0]
    events: list[Event] = []
    for one in worker_event:
        first = row.at == 0 and not events
        events += codec.begin(one, row.ids, turn) if first else [codec.adopt(one, row.ids)]
    await house.engine.events.append(task, LogEntry(events, None, row.ids), after=row.at)


async def dead(post: Post) -> list[tuple[str, int, str]]:
    return [(letter.config, letter.cursor, letter.reason) for letter in (await post.push.dead_letters(ME)).letters]


DONE = status("completed", "done")
BODY_COMPLETE = task("completed")
"""A task in one event."""
