"""Receivers that fail: at least once, under one id, for a day, and then a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook_guard import WebhookGuard
from rolecall.model.ids import Cursor
from tests.flow.conftest import ME, House
from tests.flow.push.conftest import (
    BODY_COMPLETE,
    DONE,
    HOSTS,
    QUICK,
    Post,
    a_task,
    dead,
    logged,
    post_of,
    retried,
    stays,
    until,
)
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, task

NOT_MODIFIED, NOT_HTTP = b"HTTP/1.1 304 Not Modified\r\n\r\n", b"SSH-2.0\r\n\r\n"


@pytest.mark.parametrize("failure", [500, 503, 408, 429, 302, NOT_MODIFIED, NOT_HTTP, "hang", "cut"])
async def test_a_failure_is_made_good_in_order_and_under_the_same_id(
    post: Post, house: House, receiver: Receiver, failure: Any
) -> None:
    mine = await a_task(house)
    receiver.then(200, failure, failure)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), chunk("a"), chunk("b"), DONE)
    await retried(post, lambda: receiver.taken == [1, 2, 3, 4], 0.2)
    assert receiver.cursors == [1, 2, 2, 2, 3, 4]
    assert len(set(receiver.ids)) == 4
    assert len({request.body for request in receiver.got}) == 4
    assert receiver.most_at_once == 1
    assert post.observer.outcomes == ["delivered", "failed", "failed", "delivered", "delivered", "delivered"]
    assert not await dead(post)


async def test_events_that_come_while_a_receiver_is_down_wait_for_their_turn(
    post: Post, house: House, receiver: Receiver
) -> None:
    mine = await a_task(house)
    receiver.then(500, 500, 500)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"))
    await until(lambda: len(receiver.got) == 1)
    await logged(house, mine, chunk("a"), DONE)
    await stays(lambda: receiver.cursors == [1])
    await retried(post, lambda: receiver.taken == [1, 2, 3])
    assert receiver.cursors == [1, 1, 1, 1, 2, 3]


async def test_each_wait_is_twice_as_long_up_to_an_hour(post: Post, house: House, receiver: Receiver) -> None:
    """With dice that always show the middle."""
    mine = await a_task(house)
    receiver.then(*[500] * 16)
    await post.set(mine, receiver.url)
    await logged(house, mine, BODY_COMPLETE)
    waits = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]
    for wait in waits:
        await until(lambda: len(post.observer.outcomes) == len(receiver.got) > 0)
        tried = list(receiver.got)
        house.clock.advance(wait - 0.5)
        await asyncio.sleep(0.06)  # three looks of the loop
        assert receiver.got == tried
        house.clock.advance(0.6)
        async with asyncio.timeout(5):
            while receiver.got == tried:  # noqa: ASYNC110  as in `until`
                await asyncio.sleep(0.005)


@pytest.mark.parametrize(("asked", "wait"), [("40", 40), ("0", 1), ("86400", 3600), ("tomorrow", 1)])
async def test_retry_after_is_heeded_within_bounds(
    post: Post, house: House, receiver: Receiver, asked: str, wait: float
) -> None:
    mine = await a_task(house)
    receiver.then(f"HTTP/1.1 503 Busy\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n".encode())
    await post.set(mine, receiver.url)
    await logged(house, mine, BODY_COMPLETE)
    await until(lambda: len(post.observer.outcomes) == 1)
    house.clock.advance(wait - 0.5)
    await stays(lambda: len(receiver.got) == 1)
    house.clock.advance(0.6)
    await until(lambda: len(receiver.got) == 2)


@pytest.mark.parametrize("refusal", [400, 401, 404, 410, 422])
async def test_a_refused_event_is_dead_at_once_and_can_be_sent_again(
    post: Post, house: House, receiver: Receiver, refusal: int
) -> None:
    mine = await a_task(house)
    receiver.then(200, refusal)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), chunk("a"), DONE)
    await until(lambda: receiver.taken == [1, 3])
    assert receiver.cursors == [1, 2, 3]
    assert await dead(post) == [("c", 2, f"HTTP {refusal}")]
    await post.push.redeliver(ME, mine, "c", Cursor(2))
    await until(lambda: receiver.taken == [1, 3, 2])
    assert receiver.ids[-1] == receiver.ids[1]
    assert receiver.got[-1].body == receiver.got[1].body
    assert not await dead(post)


async def test_a_receiver_that_is_down_for_a_day_is_given_up_event_by_event(
    post: Post, house: House, receiver: Receiver
) -> None:
    """The second event does not get another day: who has been away for so long is asked once for each."""
    mine = await a_task(house)
    receiver.then(*[500] * 100)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), chunk("a"), DONE)
    began = house.clock.monotonic()
    await retried(post, lambda: receiver.cursors[-1:] == [3] and post.observer.outcomes.count("dead") == 3, 1200)
    assert 24 * 3600 <= house.clock.monotonic() - began < 26 * 3600
    assert receiver.cursors[-3:] == [1, 2, 3]
    assert receiver.cursors.count(1) > 25
    assert await dead(post) == [("c", 3, "HTTP 500"), ("c", 2, "HTTP 500"), ("c", 1, "HTTP 500")]


async def test_the_last_try_comes_when_the_time_is_over_and_not_much_later(house: House, receiver: Receiver) -> None:
    receiver.then(*[500] * 10)
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(house, client, guard, replace(QUICK, retry=timedelta(seconds=10)), vault=SealingVault(random_key()))
        mine = await a_task(house)
        await post.set(mine, receiver.url)
        await logged(house, mine, BODY_COMPLETE)
        for tries, wait in enumerate((1, 2, 4, 3), 1):
            await until(lambda: len(post.observer.outcomes) == len(receiver.got) > 0)
            assert post.observer.outcomes == ["failed"] * tries
            house.clock.advance(wait + 0.05)
            await asyncio.sleep(0.06)  # three looks of the loop
        await until(lambda: post.observer.outcomes == [*["failed"] * 4, "dead"])
        await post.supervisor.close()


async def test_a_day_begins_anew_when_a_receiver_has_taken_something(post: Post, house: House, receiver: Receiver) -> None:
    mine = await a_task(house)
    receiver.then(500, 200, 500)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), DONE)
    await until(lambda: post.observer.outcomes == ["failed"])
    house.clock.advance(25 * 3600)
    await until(lambda: post.observer.outcomes == ["failed", "delivered", "failed"])
    await retried(post, lambda: receiver.taken == [1, 2])
    assert not await dead(post)


async def test_a_receiver_whose_name_turns_private_is_retried_and_then_given_up(house: House, receiver: Receiver) -> None:
    meaning = ["93.184.215.14"]

    async def resolver(host: str, port: int) -> Sequence[str]:
        return meaning

    guard = WebhookGuard([], [], [], ports=frozenset({receiver.port}), resolver=resolver)
    async with Client(guard) as client:
        post = post_of(house, client, guard, replace(QUICK, retry=timedelta(seconds=30)), vault=SealingVault(random_key()))
        mine = await a_task(house)
        await post.set(mine, f"https://app.example:{receiver.port}/")
        meaning[:] = ["127.0.0.1"]
        await logged(house, mine, BODY_COMPLETE)
        await retried(post, lambda: "dead" in post.observer.outcomes)
        await post.supervisor.close()
        assert post.observer.outcomes.count("failed") >= 4
        assert await dead(post) == [("c", 1, "address not allowed by policy")]
    assert not receiver.got


async def test_what_cannot_be_said_in_a_dialect_is_given_up_and_the_rest_is_told(
    post: Post, house: House, receiver: Receiver
) -> None:
    """A worker's text part without a text."""
    mine = await a_task(house)
    await post.set(mine, receiver.url, dialect="1.0")
    nonsense: Any = 5
    await logged(house, mine, task("working"), chunk(nonsense), DONE)
    await until(lambda: receiver.taken == [1, 3])
    ((_, cursor, reason),) = await dead(post)
    assert (cursor, "1.0" in reason) == (2, True)


async def test_one_dead_receiver_holds_up_nobody_else(post: Post, house: House, receiver: Receiver) -> None:
    async with Receiver() as hanging:
        hanging.then(*["hang"] * 200)
        stuck = [await a_task(house) for _ in range(60)]
        for mine in stuck:
            await post.set(mine, hanging.url.replace("127.0.0.1", "localhost"))
            await logged(house, mine, BODY_COMPLETE)
        await until(lambda: len(hanging.got) == 4)
        good = await a_task(house)
        await post.set(good, receiver.url)
        await logged(house, good, BODY_COMPLETE)
        await until(lambda: receiver.cursors == [1], 0.9)
        assert hanging.most_together == 4


async def test_no_more_are_told_at_once_than_the_pace_allows(house: House, receiver: Receiver) -> None:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(house, client, guard, replace(QUICK, at_once=3, per_host=2), vault=SealingVault(random_key()))
        for number in range(12):
            mine = await a_task(house)
            receiver.then(0.03)
            await post.set(mine, receiver.url if number % 2 else receiver.url.replace("127.0.0.1", "localhost"))
            await logged(house, mine, BODY_COMPLETE)
        await until(lambda: len(receiver.taken) == 12)
        await post.supervisor.close()
    assert receiver.most_together == 3
