"""Receivers that fail: retries under one id for a day, then a dead letter."""

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
from rolecall.model.ids import Caller, Cursor
from rolecall.model.push import PushConfig
from tests.flow.conftest import CALLER, System
from tests.flow.push.conftest import (
    BODY_COMPLETE,
    DONE,
    HOSTS,
    QUICK,
    Post,
    a_task,
    advance_until,
    dead,
    logged,
    post_of,
    still_holds,
    until,
)
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, task

NOT_MODIFIED, NOT_HTTP = b"HTTP/1.1 304 Not Modified\r\n\r\n", b"SSH-2.0\r\n\r\n"


@pytest.mark.parametrize("failure", [500, 503, 408, 429, 302, NOT_MODIFIED, NOT_HTTP, "hang", "cut"])
async def test_a_failed_event_is_retried_in_order_with_the_same_id(
    post: Post, system: System, receiver: Receiver, failure: Any
) -> None:
    mine = await a_task(system)
    receiver.then(200, failure, failure)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), chunk("a"), chunk("b"), DONE)
    outcomes = post.observer.outcomes
    await advance_until(post, lambda: receiver.taken == [1, 2, 3, 4] and len(outcomes) == len(receiver.got), 0.2)
    assert receiver.cursors == [1, 2, 2, 2, 3, 4]
    assert len(set(receiver.ids)) == 4
    assert len({request.body for request in receiver.got}) == 4
    assert receiver.most_at_once == 1
    assert outcomes == ["delivered", "failed", "failed", "delivered", "delivered", "delivered"]
    assert not await dead(post)


async def test_events_that_are_logged_while_a_receiver_is_down_are_delivered_in_order(
    post: Post, system: System, receiver: Receiver
) -> None:
    mine = await a_task(system)
    receiver.then(500, 500, 500)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"))
    await until(lambda: len(receiver.got) == 1)
    await logged(system, mine, chunk("a"), DONE)
    await still_holds(lambda: receiver.cursors == [1])
    await advance_until(post, lambda: receiver.taken == [1, 2, 3])
    assert receiver.cursors == [1, 1, 1, 1, 2, 3]


async def test_each_wait_is_twice_as_long_up_to_an_hour(post: Post, system: System, receiver: Receiver) -> None:
    """With a fixed random number in the middle."""
    mine = await a_task(system)
    receiver.then(*[500] * 16)
    await post.set(mine, receiver.url)
    await logged(system, mine, BODY_COMPLETE)
    waits = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]
    for wait in waits:
        await until(lambda: len(post.observer.outcomes) == len(receiver.got) > 0)
        received = list(receiver.got)
        system.clock.advance(wait - 0.5)
        await asyncio.sleep(0.06)  # three looks of the loop
        assert receiver.got == received
        system.clock.advance(0.6)
        async with asyncio.timeout(5):
            while receiver.got == received:  # noqa: ASYNC110  as in `until`
                await asyncio.sleep(0.005)


@pytest.mark.parametrize(("asked", "wait"), [("40", 40), ("0", 1), ("86400", 3600), ("tomorrow", 1)])
async def test_retry_after_is_respected_within_limits(
    post: Post, system: System, receiver: Receiver, asked: str, wait: float
) -> None:
    mine = await a_task(system)
    receiver.then(f"HTTP/1.1 503 Busy\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n".encode())
    await post.set(mine, receiver.url)
    await logged(system, mine, BODY_COMPLETE)
    await until(lambda: len(post.observer.outcomes) == 1)
    system.clock.advance(wait - 0.5)
    await still_holds(lambda: len(receiver.got) == 1)
    system.clock.advance(0.6)
    await until(lambda: len(receiver.got) == 2)


@pytest.mark.parametrize("refusal", [400, 401, 404, 410, 422])
async def test_a_refused_event_is_a_dead_letter_at_once_and_can_be_redelivered(
    post: Post, system: System, receiver: Receiver, refusal: int
) -> None:
    mine = await a_task(system)
    receiver.then(200, refusal)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), chunk("a"), DONE)
    await until(lambda: receiver.taken == [1, 3])
    assert receiver.cursors == [1, 2, 3]
    assert await dead(post) == [("c", 2, f"HTTP {refusal}")]
    await post.push.redeliver(CALLER, mine, "c", Cursor(2))
    await until(lambda: receiver.taken == [1, 3, 2] and post.observer.outcomes.count("delivered") == 3)
    assert receiver.ids[-1] == receiver.ids[1]
    assert receiver.got[-1].body == receiver.got[1].body
    assert not await dead(post)


async def test_a_receiver_that_is_down_for_a_day_is_given_up_event_by_event(
    post: Post, system: System, receiver: Receiver
) -> None:
    """The second event does not get another day: a receiver that failed for so long gets one attempt per event."""
    mine = await a_task(system)
    receiver.then(*[500] * 100)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), chunk("a"), DONE)
    began = system.clock.monotonic()
    await advance_until(post, lambda: receiver.cursors[-1:] == [3] and post.observer.outcomes.count("dead") == 3, 1200)
    assert 24 * 3600 <= system.clock.monotonic() - began < 26 * 3600
    assert receiver.cursors[-3:] == [1, 2, 3]
    assert receiver.cursors.count(1) > 25
    assert await dead(post) == [("c", 3, "HTTP 500"), ("c", 2, "HTTP 500"), ("c", 1, "HTTP 500")]


async def test_the_last_attempt_is_at_the_end_of_the_retry_time(system: System, receiver: Receiver) -> None:
    receiver.then(*[500] * 10)
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(system, client, guard, replace(QUICK, retry=timedelta(seconds=10)), vault=SealingVault(random_key()))
        mine = await a_task(system)
        await post.set(mine, receiver.url)
        await logged(system, mine, BODY_COMPLETE)
        for attempts, wait in enumerate((1, 2, 4, 3), 1):
            await until(lambda: len(post.observer.outcomes) == len(receiver.got) > 0)
            assert post.observer.outcomes == ["failed"] * attempts
            system.clock.advance(wait + 0.05)
            await asyncio.sleep(0.06)  # three looks of the loop
        await until(lambda: post.observer.outcomes == [*["failed"] * 4, "dead"])
        await post.supervisor.close()


async def test_the_day_begins_again_after_a_delivery(post: Post, system: System, receiver: Receiver) -> None:
    mine = await a_task(system)
    receiver.then(500, 200, 500)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), DONE)
    await until(lambda: post.observer.outcomes == ["failed"])
    system.clock.advance(25 * 3600)
    await until(lambda: post.observer.outcomes == ["failed", "delivered", "failed"])
    await advance_until(post, lambda: receiver.taken == [1, 2])
    assert not await dead(post)


async def test_a_receiver_whose_name_turns_private_is_retried_and_then_given_up(
    system: System, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    meaning = ["93.184.215.14"]

    async def resolver(workspace: str, host: str, port: int) -> Sequence[str]:
        return meaning

    guard = WebhookGuard([], [], [], ports=frozenset({receiver.port}), resolve=resolver)
    async with Client(guard) as client:
        post = post_of(system, client, guard, replace(QUICK, retry=timedelta(seconds=30)), vault=SealingVault(random_key()))
        mine = await a_task(system)
        await post.set(mine, f"https://app.example:{receiver.port}/")
        meaning[:] = ["127.0.0.1"]
        await logged(system, mine, BODY_COMPLETE)
        await advance_until(post, lambda: "dead" in post.observer.outcomes)
        await post.supervisor.close()
        assert post.observer.outcomes.count("failed") >= 4
        ((config, cursor, why),) = await dead(post)
        assert (config, cursor, why.startswith("webhook url rejected: ")) == ("c", 1, True)
    lines = [record for record in caplog.records if record.__dict__["event"] == "push_failed"]
    assert {(line.levelname, line.__dict__["workspace"], line.__dict__["why"] == why) for line in lines} == {
        ("WARNING", CALLER.workspace, True)
    }
    assert not receiver.got


async def test_an_event_that_a_dialect_cannot_express_is_given_up_and_the_others_are_delivered(
    post: Post, system: System, receiver: Receiver
) -> None:
    """A worker's text part without a text."""
    mine = await a_task(system)
    await post.set(mine, receiver.url, dialect="1.0")
    invalid_answer: Any = 5
    await logged(system, mine, task("working"), chunk(invalid_answer), DONE)
    await until(lambda: receiver.taken == [1, 3])
    ((_, cursor, reason),) = await dead(post)
    assert (cursor, "1.0" in reason) == (2, True)


async def test_a_dead_receiver_does_not_delay_others(post: Post, system: System, receiver: Receiver) -> None:
    async with Receiver() as blocked:
        blocked.then(*["hang"] * 200)
        blocked_tasks = [await a_task(system) for _ in range(60)]
        for mine in blocked_tasks:
            await post.set(mine, blocked.url.replace("127.0.0.1", "localhost"))
            await logged(system, mine, BODY_COMPLETE)
        await until(lambda: len(blocked.got) == 4)
        good = await a_task(system)
        await post.set(good, receiver.url)
        await logged(system, good, BODY_COMPLETE)
        await until(lambda: receiver.cursors == [1], 0.9)
        assert blocked.most_together == 4


async def test_no_more_receivers_are_served_at_once_than_the_policy_allows(system: System, receiver: Receiver) -> None:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(system, client, guard, replace(QUICK, at_once=3, per_host=2), vault=SealingVault(random_key()))
        for number in range(12):
            mine = await a_task(system)
            receiver.then(0.03)
            await post.set(mine, receiver.url if number % 2 else receiver.url.replace("127.0.0.1", "localhost"))
            await logged(system, mine, BODY_COMPLETE)
        await until(lambda: len(receiver.taken) == 12)
        await post.supervisor.close()
    assert receiver.most_together == 3


async def test_a_workspace_whose_receivers_hang_delays_no_other_workspace(system: System, receiver: Receiver) -> None:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client, Receiver() as blocked:
        policy = replace(QUICK, at_once=4, per_workspace=2, per_host=2)
        post = post_of(system, client, guard, policy, vault=SealingVault(random_key()))
        for number in range(6):
            mine = await a_task(system)
            blocked.then("hang")
            await post.set(mine, blocked.url if number % 2 else blocked.url.replace("127.0.0.1", "localhost"))
            await logged(system, mine, BODY_COMPLETE)
        await until(lambda: len(blocked.got) == 2)
        use = system.deps.shares.deliveries.use
        assert (use.used, use.largest) == (2, 2)
        other = Caller("other", "o")
        foreign = await a_task(system, other)
        await post.push.set(other, PushConfig(foreign, "c", receiver.url, "1.0"))
        await logged(system, foreign, BODY_COMPLETE, caller=other)
        await until(lambda: receiver.cursors == [1], 0.5)
        assert blocked.most_together == 2
        await post.supervisor.close()
        assert system.deps.shares.deliveries.use.used == 0
