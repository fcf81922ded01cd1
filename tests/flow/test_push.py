"""Push notifications from the log to real receivers: every event, in order, at least once, under one id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from hub.core.observe import Silent
from hub.core.push import Deliveries, Pace
from hub.core.pushes import Push
from hub.core.supervisor import Supervisor
from hub.errors import InvalidParams, PushConfigNotFound, StoreUnavailable, TaskNotFound, WebhookRejected
from hub.model.a2a import Event
from hub.model.ids import Caller, Cursor, TaskId
from hub.model.push import PushConfig
from hub.net.http1 import Client
from hub.net.webhook import HttpWebhooks
from hub.net.webhook_guard import WebhookGuard
from hub.ports import Claim, Entry
from hub.vault import SealingVault, random_key
from tests.contract.words import a_row, a_turn
from tests.flow.conftest import ME, House
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, message, status, task

QUICK = Pace(look_every=0.02)
HOSTS = ("127.0.0.1", "localhost")


@dataclass
class Count(Silent):
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
    push: Push
    deliveries: Deliveries
    supervisor: Supervisor

    def other(self, pace: Pace = QUICK, **changed: Any) -> Post:
        """One more hub on the same store."""
        return post_of(self.house, self.client, self.guard, pace, vault=self.vault, **changed)

    async def set(self, task: TaskId, url: str, name: str = "c", **members: Any) -> PushConfig:
        return await self.push.set(ME, PushConfig(task, name, url, members.pop("dialect", "0.3"), **members))


def post_of(
    house: House, client: Client, guard: WebhookGuard, pace: Pace = QUICK, *, vault: SealingVault, **changed: Any
) -> Post:
    observer, supervisor = Count(), Supervisor()
    around = replace(house.around, observer=observer, **changed)
    webhooks = HttpWebhooks(client, guard, house.clock.wall, within=1.0)
    deliveries = Deliveries(around, webhooks, vault, supervisor, pace, dice=lambda: 0.5)
    push = Push(around.engine.pushes, webhooks, vault, deliveries, most=10)
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


async def logged(house: House, task: TaskId, *heard: Any) -> None:
    """Append what a worker said."""
    codec, row = house.around.codec, await house.engine.tasks.get(ME, task)
    turn = (await house.engine.tasks.turns(task))[0]
    events: list[Event] = []
    for one in heard:
        first = row.at == 0 and not events
        events += codec.begin(one, row.ids, turn) if first else [codec.adopt(one, row.ids)]
    await house.engine.events.append(task, Entry(events, None, row.ids), after=row.at)


async def dead(post: Post) -> list[tuple[str, int, str]]:
    return [(letter.config, letter.cursor, letter.reason) for letter in (await post.push.dead_letters(ME)).letters]


DONE = status("completed", "done")
WHOLE = task("completed")
"""A task in one event."""


# --- in order, and all of it


async def test_a_receiver_gets_the_task_as_it_was_after_each_event(post: Post, house: House, receiver: Receiver) -> None:
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), chunk("a "), chunk("b "))
    await logged(house, mine, DONE)
    await until(lambda: len(receiver.got) == 4)
    assert receiver.cursors == [1, 2, 3, 4]
    assert receiver.ids[0] == f"{mine}.c.1"
    assert [body["status"]["state"] for body in receiver.bodies] == ["working"] * 3 + ["completed"]
    texts = [[part["text"] for a in body.get("artifacts", []) for part in a["parts"]] for body in receiver.bodies]
    assert texts == [[], ["a "], ["a ", "b "], ["a ", "b "]]
    assert {body["id"] for body in receiver.bodies} == {mine}
    await stays(lambda: len(receiver.got) == 4)
    assert post.observer.outcomes == ["delivered"] * 4


@pytest.mark.parametrize("dialect", ["0.1", "1.0"])
async def test_each_config_is_told_in_its_own_dialect(post: Post, house: House, receiver: Receiver, dialect: str) -> None:
    mine = await a_task(house)
    await post.set(mine, receiver.url, dialect=dialect)
    await post.set(mine, receiver.url, "other")
    await logged(house, mine, task("working"), DONE)
    await until(lambda: len(receiver.got) == 4)
    own = [body for name, body in zip(receiver.ids, receiver.bodies, strict=True) if ".c." in name]
    other = [body for name, body in zip(receiver.ids, receiver.bodies, strict=True) if ".other." in name]
    assert [body["kind"] for body in other] == ["task", "task"]
    assert [sorted(body) for body in own] == (
        [["task"], ["statusUpdate"]] if dialect == "1.0" else [["eventType", "status", "taskId", "timestamp"]] * 2
    )


async def test_a_receiver_that_is_set_after_the_end_is_told_of_it_at_once(post: Post, house: House, receiver: Receiver) -> None:
    mine = await a_task(house)
    await logged(house, mine, task("working"), chunk("a"), DONE)
    await post.set(mine, receiver.url)
    await until(lambda: receiver.cursors == [3])
    assert receiver.bodies[0]["status"]["state"] == "completed"


async def test_a_whole_call_through_the_hub_is_told(post: Post, house: House, receiver: Receiver) -> None:
    """A worker that can only answer: its caller gets notifications all the same."""
    await house.enrol("echo:a", streaming=False)
    house.forwarder.plan("echo:a", task("input-required", "which?"))
    house.forwarder.plan(
        "echo:a", task("completed", "this", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    )
    asked = await house.send()
    await post.set(TaskId(asked["id"]), receiver.url)
    answered = await house.send("blue", taskId=asked["id"])
    await until(lambda: bool(receiver.got) and receiver.bodies[-1]["status"]["state"] == "completed")
    assert receiver.cursors == list(range(2, 2 + len(receiver.got)))
    assert receiver.bodies[-1] == answered


async def test_a_long_log_is_told_from_beginning_to_end(post: Post, house: House, receiver: Receiver) -> None:
    """Long enough for notices that are made beside the loop."""
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, task("working"), *(chunk("x" * 30_000) for _ in range(12)), DONE)
    await until(lambda: len(receiver.got) == 14)
    assert receiver.cursors == list(range(1, 15))
    assert len(receiver.got[-1].body) > 12 * 30_000


async def test_a_bare_message_is_told_to_nobody(post: Post, house: House, receiver: Receiver) -> None:
    mine = await a_task(house)
    await post.set(mine, receiver.url)
    await logged(house, mine, message("hello"))
    await stays(lambda: not receiver.got)


# --- receivers that fail


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
    await logged(house, mine, WHOLE)
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
    await logged(house, mine, WHOLE)
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
        await logged(house, mine, WHOLE)
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
        await logged(house, mine, WHOLE)
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
            await logged(house, mine, WHOLE)
        await until(lambda: len(hanging.got) == 4)
        good = await a_task(house)
        await post.set(good, receiver.url)
        await logged(house, good, WHOLE)
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
            await logged(house, mine, WHOLE)
        await until(lambda: len(receiver.taken) == 12)
        await post.supervisor.close()
    assert receiver.most_together == 3


# --- one holder


async def test_two_hubs_on_one_store_tell_each_event_once_and_in_order(post: Post, house: House, receiver: Receiver) -> None:
    other = post.other()
    tasks = [await a_task(house) for _ in range(10)]
    for mine in tasks:
        await post.set(mine, receiver.url)
    for heard in (task("working"), chunk("a"), chunk("b"), DONE):
        for mine in tasks:
            await logged(house, mine, heard)
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

        async def delivered(self, claim: Claim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
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
    await logged(house, mine, WHOLE)
    await until(lambda: len(receiver.got) == 1)
    house.clock.advance(31)
    await until(lambda: receiver.taken == [1] and receiver.left == 1, 0.7)
    assert post.observer.outcomes == ["delivered"]


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


# --- secrets


async def test_secrets_go_out_as_they_came_in_and_stand_nowhere_else(
    post: Post, house: House, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = await a_task(house)
    receiver.then(500, 404)
    kept = await post.set(mine, receiver.url, token="tok-SECRET", schemes=("Basic",), credentials="cred-SECRET")
    await logged(house, mine, task("working"), DONE)
    await retried(post, lambda: len(receiver.got) == 3)
    headers = receiver.got[-1].headers
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Basic cred-SECRET", "tok-SECRET")
    (stored,) = await house.engine.pushes.list(ME, mine)
    shown = [kept, await post.push.get(ME, mine, "c"), *(await post.push.list(ME, mine)), stored]
    shown += [stored.token, stored.credentials, *(await post.push.dead_letters(ME)).letters]
    shown += [record.__dict__ for record in caplog.records]
    assert "SECRET" not in repr(shown)
    assert (kept.token, kept.credentials, kept.schemes) == (None, None, ("Basic",))
    assert "SECRET" not in repr(PushConfig(mine, "c", "u", "0.3", token="SECRET", credentials="SECRET"))


async def test_a_secret_that_cannot_be_read_is_a_failure_like_any(post: Post, house: House, receiver: Receiver) -> None:
    """The right key may come back with the next start."""
    mine = await a_task(house)
    await post.set(mine, receiver.url, token="T")
    await post.supervisor.close()
    stranger = post_of(house, post.client, post.guard, vault=SealingVault(random_key()))
    await logged(house, mine, WHOLE)
    await until(lambda: stranger.observer.outcomes == ["failed"])
    await stranger.supervisor.close()
    assert not receiver.got
    right = post.other()
    await retried(right, lambda: receiver.taken == [1])
    await right.supervisor.close()


# --- what may be set


@pytest.mark.parametrize(
    "members",
    [
        {"token": "x\r\nX-Evil: 1"},
        {"credentials": "x\r\nX-Evil: 1"},
        {"token": "x\n"},
        {"token": "x\x00"},
        {"token": "x\x7f"},
        {"token": ""},
        {"token": "ü"},
        {"credentials": "x" * 4097},
        {"schemes": ("Bearer\r\nX-Evil: 1",)},
        {"schemes": ("two words",)},
        {"schemes": ("",)},
        {"name": "a/b"},
        {"name": "a b"},
        {"name": "a\r\nb"},
        {"name": "x" * 129},
    ],
)
async def test_what_could_break_a_head_is_refused_when_it_is_set(post: Post, house: House, members: dict[str, Any]) -> None:
    mine = await a_task(house)
    with pytest.raises(InvalidParams) as caught:
        await post.set(mine, "http://127.0.0.1/", **members)
    assert "Evil" not in caught.value.message
    assert not await post.push.list(ME, mine)


async def test_a_url_that_is_refused_leaves_the_config_as_it_was(post: Post, house: House) -> None:
    mine = await a_task(house)
    await post.set(mine, "http://127.0.0.1/old")
    with pytest.raises(WebhookRejected, match=r"^webhook url rejected: "):
        await post.set(mine, "http://10.0.0.1/new")
    assert (await post.push.get(ME, mine, "c")).url == "http://127.0.0.1/old"


async def test_an_unknown_task_is_unknown_before_its_url_is_judged(post: Post, house: House) -> None:
    for mine in (TaskId("nope"), await a_task(house, Caller("default", "somebody else"))):
        for call in (
            post.set(mine, "http://10.0.0.1/"),
            post.push.get(ME, mine),
            post.push.get(ME, mine, "c"),
            post.push.list(ME, mine),
            post.push.delete(ME, mine, "c"),
            post.push.redeliver(ME, mine, "c", Cursor(1)),
        ):
            with pytest.raises(TaskNotFound):
                await call


async def test_a_config_without_an_id_is_named_after_its_task(post: Post, house: House) -> None:
    mine = await a_task(house)
    with pytest.raises(PushConfigNotFound, match="no push config"):
        await post.push.get(ME, mine)
    await post.set(mine, "http://127.0.0.1/1", "first")
    assert (await post.push.get(ME, mine)).id == "first"
    assert (await post.set(mine, "http://127.0.0.1/2", "")).id == mine
    assert (await post.push.get(ME, mine)).url == "http://127.0.0.1/2"
    assert [config.id for config in await post.push.list(ME, mine)] == ["first", mine]


async def test_a_task_takes_so_many_configs_and_no_more(post: Post, house: House) -> None:
    mine = await a_task(house)
    for number in range(10):
        await post.set(mine, "http://127.0.0.1/", str(number))
    with pytest.raises(InvalidParams, match="ROLECALL_MAX_PUSH_CONFIGS"):
        await post.set(mine, "http://127.0.0.1/", "more")
