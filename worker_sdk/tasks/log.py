"""The log of one task: the handler's events, numbered from 1. Readers follow it and can resume at a position.

Memory is bounded by one rule. At the cap the handler waits. Events are dropped only then, and only those that every
attached reader has passed by half the cap, because the last bytes may still be in transit, and a hub that is killed
requests them again. Without a reader nothing is dropped, so no event is lost that nobody has received.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from rolecall.model.a2a import PAUSED, TERMINAL, Event, EventKind, JsonObject, Logged, TaskState
from rolecall.model.fold import TaskFold, trim_history
from rolecall.model.ids import Cursor
from rolecall.model.usage import UsageSums
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_3 import VERSION
from worker_sdk.words import TooLarge, usage_metadata, usage_of

CAP = 16 * 1024 * 1024
MAX_EVENT = 16 * 1024 * 1024
_PAGE = 256


class TaskLog:
    """One writer, the handler's execution; any number of readers. All on one event loop."""

    def __init__(self, task_id: str, context_id: str, *, cap: int = CAP, max_event: int = MAX_EVENT) -> None:
        self.task_id, self.context_id = task_id, context_id
        self.state = TaskState.SUBMITTED
        self.size = 0
        self._cap = cap
        self.max_event = max_event
        self._largest = 0
        self._events: list[Event] = []
        self._first = 1
        self._dropped_bytes = 0
        self._base: JsonObject | None = None
        self._dropped_usage = UsageSums()
        self._turns: list[tuple[int, JsonObject]] = []
        self._readers: set[Reader] = set()
        self._space = asyncio.Event()
        self._at_rest = asyncio.Event()

    @property
    def end(self) -> int:
        return self._first + len(self._events) - 1

    @property
    def first(self) -> int:
        """The oldest event that is still stored."""
        return self._first

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def resting(self) -> bool:
        """The task has ended or waits for input: no event follows unless the caller acts."""
        return self.state in TERMINAL or self.state in PAUSED

    # --- writing

    def append(self, kind: EventKind, document: JsonObject, state: TaskState | None = None) -> None:
        """TooLarge: nothing was added. The first event has the caller's message, which another limit has passed."""
        body = dump(document)
        if len(body) > self.max_event and self._events:
            raise TooLarge(f"This {kind.value}", len(body), self.max_event)
        self._largest = max(self._largest, len(body))
        self._events.append(Event(kind, state, VERSION, body))
        self.size += len(body)
        if state is not None:
            self.state = state
            if self.resting:
                self._at_rest.set()
            else:
                self._at_rest.clear()
        for reader in self._readers:
            reader.wake()

    def add_turn(self, message: JsonObject) -> None:
        """Add a message of the caller. It is not an event, but part of the history from here on."""
        self._turns.append((self.end, message))

    async def wait_for_space(self) -> None:
        """Wait until the log is below its cap, or holds little more than half of it and one large event."""
        while self.full:
            self._space.clear()
            await self._space.wait()

    @property
    def full(self) -> bool:
        """The handler would have to wait."""
        if self.size >= self._limit:
            self._make_space()
        return self.size >= self._limit

    @property
    def _limit(self) -> int:
        """Of what readers have passed, half of the cap is kept, and events are dropped as a whole: the rest is below this."""
        return max(self._cap, self._cap // 2 + self._largest) if self._readers else self._cap

    async def wait_until_resting(self) -> None:
        """Wait until the task has ended or waits for input."""
        await self._at_rest.wait()

    # --- reading

    def follow(self, after: int) -> Reader:
        """Attach a reader that already has everything up to `after`. The caller must close it."""
        received = self._dropped_bytes + sum(len(event.body) for event in self._events[: max(0, after - self._first + 1)])
        reader = Reader(self, after, received)
        self._readers.add(reader)
        self._space.set()
        return reader

    def page(self, after: int) -> Sequence[Logged]:
        start = after - self._first + 1
        return [Logged(Cursor(after + at), event) for at, event in enumerate(self._events[start : start + _PAGE], 1)]

    def snapshot(self, *, upto: int | None = None, history_length: int | None = None) -> bytes:
        """The Task as of the event `upto`. As of now if `upto` is None or that event was dropped."""
        end = self.end if upto is None or upto < self._first else upto
        if end == 1 and self._first == 1 and not self._turns and history_length is None:
            return self._events[0].body
        fold = self._fold_of_base()
        turns = deque(turn for turn in self._turns if turn[0] <= end)
        for at, event in enumerate(self._events[: end - self._first + 1], self._first):
            while fold is not None and turns and turns[0][0] < at:
                fold.add_turn(turns.popleft()[1])
            if fold is None:
                fold = TaskFold(parse(event.body))
            else:
                fold.add(event.kind, parse(event.body))
        assert fold is not None
        for _, message in turns:
            fold.add_turn(message)
        trim_history(fold.document, history_length)
        return dump(fold.document)

    def _fold_of_base(self) -> TaskFold | None:
        """It changes its document, and the base stays as it is."""
        base = self._base
        if base is None:
            return None
        return TaskFold({**base, "history": [*base["history"]], "metadata": {**base["metadata"]}})

    # --- making space

    def progress(self) -> None:
        self._space.set()

    def detach(self, reader: Reader) -> None:
        self._readers.discard(reader)
        self._space.set()

    def _make_space(self) -> None:
        if not self._readers:
            return
        passed = min(reader.received for reader in self._readers) - self._cap // 2
        count, dropped = 0, 0
        for event in self._events:
            if self._dropped_bytes + dropped + len(event.body) > passed:
                break
            dropped += len(event.body)
            count += 1
        if count:
            self._base = self._base_after(self._events[:count])
            del self._events[:count]
            self._first += count
            self._dropped_bytes += dropped
            self.size -= dropped

    def _base_after(self, dropped: Sequence[Event]) -> JsonObject:
        """What snapshots keep of dropped events: the state and the caller's turns, no artifacts."""
        base = self._base
        for event in dropped:
            if event.kind is EventKind.TASK:
                base = parse(event.body)
            elif event.kind is EventKind.STATUS and base is not None:
                update = parse(event.body)
                base["status"] = update["status"]
                for usage in usage_of(update):
                    self._dropped_usage.add(usage)
        assert base is not None
        until = self._first + len(dropped)
        base["history"] = [*base["history"], *(message for after, message in self._turns if after < until)]
        self._turns = [turn for turn in self._turns if turn[0] >= until]
        base["metadata"] = {"rolecall": {"eventsLetGo": until - 1}} | usage_metadata(self._dropped_usage.sums)
        return base


class Reader:
    """Follows a log. The events of a batch count as received when the next batch is requested."""

    def __init__(self, log: TaskLog, after: int, received: int) -> None:
        self._log = log
        self._position = after
        self._batch_bytes = 0
        self.received = received
        self._wake = asyncio.Event()
        self._stopped = False

    async def batch(self, idle: float) -> Sequence[Logged] | None:
        """At most one page of events. Empty if none came for `idle` seconds; None at the end of the turn or after `stop`."""
        if self._batch_bytes:
            self.received += self._batch_bytes
            self._batch_bytes = 0
            self._log.progress()
        if not self._stopped and self._position == self._log.end and not self._log.resting:
            await self._sleep(idle)
        if self._stopped:
            return None
        events = self._log.page(self._position)
        if events:
            self._position = events[-1].cursor
            self._batch_bytes = sum(len(logged.event.body) for logged in events)
            return events
        return None if self._log.resting else ()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def close(self) -> None:
        self._log.detach(self)

    async def _sleep(self, idle: float) -> None:
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(idle, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
