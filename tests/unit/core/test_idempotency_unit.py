"""How long, and how many, ended calls are remembered."""

from __future__ import annotations

from datetime import timedelta

from hub.core.admission.idempotency import Call, Idempotency
from rolecall.model.ids import START, TaskId
from tests.helpers.clock import ManualClock

WINDOW = timedelta(seconds=60)


class Kept:
    """Calls that end at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.idempotency = Idempotency(self.clock, WINDOW)
        self.begun: list[bytes] = []

    async def send(self, name: bytes) -> bool:
        """Returns whether the message was recognised."""

        async def start() -> Call:
            self.begun.append(name)
            return Call(TaskId(name.hex()), "echo", START, b"c" * 16, None)

        before = len(self.begun)
        call = await self.idempotency.once((name,), b"c" * 16, start)
        assert (call.task, call.role, call.began) == (name.hex(), "echo", START)
        return len(self.begun) == before


async def test_calls_that_ended_before_the_window_are_forgotten_a_few_at_a_time() -> None:
    kept = Kept()
    for number in range(10):
        await kept.send(b"old %d" % number)
    assert len(kept.idempotency) == 10
    kept.clock.advance(60)
    for number, left in enumerate((7, 4, 3, 4)):
        await kept.send(b"new %d" % number)
        assert len(kept.idempotency) == left


async def test_calls_within_the_window_are_remembered() -> None:
    kept = Kept()
    await kept.send(b"a")
    kept.clock.advance(59)
    await kept.send(b"b")
    assert len(kept.idempotency) == 2
    assert await kept.send(b"a")
    kept.clock.advance(1)
    assert not await kept.send(b"a")


async def test_a_message_that_ended_twice_is_remembered_from_its_second_end() -> None:
    kept = Kept()
    for name in (b"again", b"b", b"c"):
        await kept.send(name)
    kept.clock.advance(61)
    assert not await kept.send(b"again")
    # Its entry is the newest now, so the older ones are forgotten.
    assert len(kept.idempotency) == 1
    assert await kept.send(b"again")


async def test_a_limited_number_is_kept_and_the_oldest_are_forgotten() -> None:
    kept = Kept()
    for number in range(50_002):
        await kept.send(b"%d" % number)
    assert len(kept.idempotency) == 50_000
    assert await kept.send(b"2")
    assert not await kept.send(b"1")
