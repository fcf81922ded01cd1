"""One holder at a time, whatever is restarted, changed or forgotten meanwhile."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.pushes import DeliveryClaim
from rolecall.errors import StoreUnavailable
from rolecall.model.ids import Cursor
from tests.flow.conftest import ME, House
from tests.flow.push.conftest import BODY_COMPLETE, DONE, HOSTS, Post, a_task, logged, post_of, stays, until
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, task


async def test_two_hubs_on_one_store_tell_each_event_once_and_in_order(post: Post, house: House, receiver: Receiver) -> None:
    other = post.other()
    tasks = [await a_task(house) for _ in range(10)]
    for mine in tasks:
        await post.set(mine, receiver.url)
    for worker_event in (task("working"), chunk("a"), chunk("b"), DONE):
        for mine in tasks:
            await logged(house, mine, worker_event)
        await asyncio.sleep(0.02)
    await until(lambda: len(receiver.got) >= 40)
    await stays(lambda: len(receiver.got) == 40)
    await other.supervisor.close()
    for mine in tasks:
        assert [name for name in receiver.ids if name.startswith(mine)] == [f"{mine}.c.{at}" for at in (1, 2, 3, 4)]
    assert receiver.most_at_once == 1
    assert post.observer.outcomes and other.observer.outcomes


async def test_a_hub_that_stops_in_the_middle_leaves_the_rest_to_the_next_at_once(
    post: Post, house: House, receiver: Receiver
) -> None:
    mine = await a_task(house)
    receiver.then(200, "hang")
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), chunk("a"), DONE)
    await until(lambda: len(receiver.got) == 2)
    await post.supervisor.close()
    next_one = post.other()
    await until(lambda: receiver.taken == [1, 2, 3], 0.9)
    await next_one.supervisor.close()
    assert receiver.cursors == [1, 2, 2, 3]


async def test_a_delivery_that_could_not_be_noted_comes_again_when_its_lease_has_ended(
    house: House, receiver: Receiver
) -> None:
    class Forgetful:
        """Loses the second note."""

        def __init__(self, inner: Any) -> None:
            self._inner, self._notes = inner, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
            self._notes += 1
            if self._notes == 2:
                raise StoreUnavailable
            found: Cursor | None = await self._inner.delivered(claim, upto, hold=hold)
            return found

    class Engine:
        def __init__(self, inner: Any) -> None:
            self._inner, self.pushes = inner, Forgetful(inner.pushes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(house, client, guard, vault=SealingVault(random_key()), engine=Engine(house.engine))
        mine = await a_task(house)
        await post.set(mine, receiver.url)
        await logged(house, mine, task("working"), chunk("a"), DONE)
        await until(lambda: len(receiver.got) == 2)
        await stays(lambda: receiver.cursors == [1, 2])
        house.clock.advance(31)
        await until(lambda: receiver.cursors == [1, 2, 2, 3])
        assert receiver.ids[1] == receiver.ids[2]
        await post.supervisor.close()


async def test_a_hub_that_lost_its_claim_to_itself_lets_go_of_the_old_delivery(
    post: Post, house: House, receiver: Receiver
) -> None:
    """Something held it up for longer than its lease."""
    mine = await a_task(house)
    receiver.then("hang")
    await post.set(mine, receiver.url)
    await logged(house, mine, BODY_COMPLETE)
    await until(lambda: len(receiver.got) == 1)
    house.clock.advance(31)
    await until(lambda: receiver.taken == [1] and receiver.left == 1, 0.7)
    await until(lambda: post.observer.outcomes == ["delivered"])


async def test_a_changed_address_ends_the_delivery_to_the_old_one(post: Post, house: House, receiver: Receiver) -> None:
    async with Receiver() as old:
        old.then("hang")
        mine = await a_task(house)
        await post.set(mine, old.url)
        await logged(house, mine, task("working"), DONE)
        await until(lambda: len(old.got) == 1)
        await post.set(mine, receiver.url)
        await until(lambda: receiver.taken == [1, 2] and old.left == 1, 0.7)
        await stays(lambda: len(old.got) == 1)


async def test_a_deleted_receiver_is_told_nothing_more(post: Post, house: House, receiver: Receiver) -> None:
    receiver.then("hang")
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"))
    await until(lambda: len(receiver.got) == 1)
    await post.push.delete(ME, mine, "c")
    await until(lambda: receiver.left == 1, 0.7)
    await logged(house, mine, DONE)
    house.clock.advance(100)
    await stays(lambda: len(receiver.got) == 1)


async def test_a_task_that_is_forgotten_meanwhile_is_told_no_more(
    post: Post, house: House, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.then(0.2)
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), DONE)
    await until(lambda: len(receiver.got) == 1)
    house.clock.advance(1)
    assert await house.engine.tasks.forget(ended_for=timedelta(milliseconds=1), paused_for=timedelta(days=1)) == 1
    await until(lambda: len(post.observer.outcomes) == 1)
    await stays(lambda: receiver.cursors == [1])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_lag_is_from_the_first_event_that_was_lacking(post: Post, house: House, receiver: Receiver) -> None:
    receiver.then(500)
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"))
    await until(lambda: post.observer.outcomes == ["failed"])
    house.clock.advance(60)
    await until(lambda: len(post.observer.lags) == 1)
    assert post.observer.lags == [60.0]
