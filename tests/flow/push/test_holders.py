"""A claim has one holder at a time, also when something is restarted, changed or deleted meanwhile."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.state.pushes import DeliveryClaim
from rolecall.errors import StoreUnavailable
from rolecall.model.ids import Cursor
from tests.flow.conftest import CALLER, System
from tests.flow.push.conftest import BODY_COMPLETE, DONE, HOSTS, Post, a_task, logged, post_of, still_holds, until
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, task


async def test_two_hubs_on_one_store_deliver_each_event_once_and_in_order(
    post: Post, system: System, receiver: Receiver
) -> None:
    tasks = [await a_task(system) for _ in range(10)]
    for mine in tasks:
        await post.set(mine, receiver.url)
    await asyncio.gather(*(logged(system, mine, task("working")) for mine in tasks))
    await until(lambda: bool(receiver.got))
    other = post.other()
    for worker_event in (chunk("a"), chunk("b"), DONE):
        await asyncio.gather(*(logged(system, mine, worker_event) for mine in tasks))
        await asyncio.sleep(0.02)
    await until(lambda: len(receiver.got) >= 40)
    await still_holds(lambda: len(receiver.got) == 40)
    await other.supervisor.close()
    for mine in tasks:
        assert [name for name in receiver.ids if name.startswith(mine)] == [f"{mine}.c.{at}" for at in (1, 2, 3, 4)]
    assert receiver.most_at_once == 1
    assert post.observer.outcomes and other.observer.outcomes


async def test_the_deliveries_of_a_stopped_hub_are_free_for_the_next_at_once(
    post: Post, system: System, receiver: Receiver
) -> None:
    mine = await a_task(system)
    receiver.then(200, "hang")
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), chunk("a"), DONE)
    await until(lambda: len(receiver.got) == 2)
    await post.supervisor.close()
    next_one = post.other()
    await until(lambda: receiver.taken == [1, 2, 3], 0.9)
    await next_one.supervisor.close()
    assert receiver.cursors == [1, 2, 2, 3]


async def test_a_delivery_that_could_not_be_recorded_is_repeated_when_its_lease_has_ended(
    system: System, receiver: Receiver
) -> None:
    class FailingPushes:
        """The second `delivered` fails."""

        def __init__(self, inner: Any) -> None:
            self._inner, self._calls = inner, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
            self._calls += 1
            if self._calls == 2:
                raise StoreUnavailable
            found: Cursor | None = await self._inner.delivered(claim, upto, hold=hold)
            return found

    class Engine:
        def __init__(self, inner: Any) -> None:
            self._inner, self.pushes = inner, FailingPushes(inner.pushes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(system, client, guard, vault=SealingVault(random_key()), engine=Engine(system.engine))
        mine = await a_task(system)
        await post.set(mine, receiver.url)
        await logged(system, mine, task("working"), chunk("a"), DONE)
        await until(lambda: len(receiver.got) == 2)
        await still_holds(lambda: receiver.cursors == [1, 2])
        system.clock.advance(31)
        await until(lambda: receiver.cursors == [1, 2, 2, 3])
        assert receiver.ids[1] == receiver.ids[2]
        await post.supervisor.close()


async def test_a_hub_that_claims_a_delivery_again_cancels_its_old_one(post: Post, system: System, receiver: Receiver) -> None:
    """It was blocked for longer than its lease."""
    mine = await a_task(system)
    receiver.then("hang")
    await post.set(mine, receiver.url)
    await logged(system, mine, BODY_COMPLETE)
    await until(lambda: len(receiver.got) == 1)
    system.clock.advance(31)
    await until(lambda: receiver.taken == [1] and receiver.left == 1, 0.7)
    await until(lambda: post.observer.outcomes == ["delivered"])


async def test_a_changed_url_ends_the_delivery_to_the_old_one(post: Post, system: System, receiver: Receiver) -> None:
    async with Receiver() as old:
        old.then("hang")
        mine = await a_task(system)
        await post.set(mine, old.url)
        await logged(system, mine, task("working"), DONE)
        await until(lambda: len(old.got) == 1)
        await post.set(mine, receiver.url)
        await until(lambda: receiver.taken == [1, 2] and old.left == 1, 0.7)
        await still_holds(lambda: len(old.got) == 1)


async def test_a_deleted_receiver_gets_no_more_events(post: Post, system: System, receiver: Receiver) -> None:
    receiver.then("hang")
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"))
    await until(lambda: len(receiver.got) == 1)
    await post.push.delete(CALLER, mine, "c")
    await until(lambda: receiver.left == 1, 0.7)
    await logged(system, mine, DONE)
    system.clock.advance(100)
    await still_holds(lambda: len(receiver.got) == 1)


async def test_an_erased_task_gets_no_more_deliveries_and_the_running_one_is_cancelled(
    post: Post, system: System, receiver: Receiver
) -> None:
    receiver.then("hang", "hang")
    mine = await a_task(system)
    for name in ("c", "d"):
        await post.set(mine, receiver.url, name)
    await logged(system, mine, task("working"), DONE)
    await until(lambda: len(receiver.got) == 2)
    assert not await system.engine.tasks.erase(mine)
    post.push.erased(mine)
    await until(lambda: receiver.left == 2, 0.7)
    system.clock.advance(100)
    await still_holds(lambda: len(receiver.got) == 2)


async def test_a_task_that_is_deleted_meanwhile_is_not_delivered(
    post: Post, system: System, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.then(0.2)
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), DONE)
    await until(lambda: len(receiver.got) == 1)
    system.clock.advance(1)
    assert await system.engine.tasks.forget(ended_for=timedelta(milliseconds=1), paused_for=timedelta(days=1)) == 1
    await until(lambda: len(post.observer.outcomes) == 1)
    await still_holds(lambda: receiver.cursors == [1])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_lag_is_measured_from_the_first_missing_event(post: Post, system: System, receiver: Receiver) -> None:
    receiver.then(500)
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"))
    await until(lambda: post.observer.outcomes == ["failed"])
    system.clock.advance(60)
    await until(lambda: len(post.observer.lag_times) == 1)
    assert post.observer.lag_times == [60.0]
