"""The log of one task: what the handler has said, numbered from 1, for every reader to follow and to come back to.

Memory is bounded by one rule. At the cap the handler waits. Events are let go only then, and only those that every
attached reader has passed by half the cap: what a reader was given may still be on its way, and a hub that is killed
asks for it again. With nobody attached nothing is let go, so nothing is lost that nobody has received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rolecall.model.a2a import PAUSED, TERMINAL, Event, EventKind, JsonObject, Logged, TaskState
from rolecall.model.fold import add_turn, fold, trim_history
from rolecall.model.ids import Cursor
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_3 import VERSION

CAP = 16 * 1024 * 1024
_PAGE = 256


class TaskLog:
    """One writer, the handler's execution; any number of readers. On one event loop."""

    def __init__(self, task_id: str, context_id: str, *, cap: int = CAP) -> None:
        self.task_id, self.context_id = task_id, context_id
        self.state = TaskState.SUBMITTED
        self.size = 0
        self._cap = cap
        self._events: list[Event] = []
        self._first = 1
        self._let_go = 0
        self._rest: JsonObject | None = None
        self._turns: list[tuple[int, JsonObject]] = []
        self._readers: set[Reader] = set()
        self._room = asyncio.Event()
        self._settled = asyncio.Event()

    @property
    def end(self) -> int:
        return self._first + len(self._events) - 1

    @property
    def first(self) -> int:
        """The oldest event that is still here."""
        return self._first

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL

    @property
    def resting(self) -> bool:
        """Nothing comes unless the caller does something: ended, or waiting for input."""
        return self.state in TERMINAL or self.state in PAUSED

    # --- writing

    def append(self, kind: EventKind, document: JsonObject, state: TaskState | None = None) -> None:
        body = dump(document)
        self._events.append(Event(kind, state, VERSION, body))
        self.size += len(body)
        if state is not None:
            self.state = state
            if self.resting:
                self._settled.set()
            else:
                self._settled.clear()
        for reader in self._readers:
            reader.wake()

    def add_turn(self, message: JsonObject) -> None:
        """A further message of the caller: no event, but part of the history from here on."""
        self._turns.append((self.end, message))

    async def room(self) -> None:
        """Wait until there is room for more."""
        while self.size >= self._cap:
            self._make_room()
            if self.size >= self._cap:
                self._room.clear()
                await self._room.wait()

    async def settled(self) -> None:
        """Wait until the task has ended or asks for input."""
        await self._settled.wait()

    # --- reading

    def follow(self, after: int) -> Reader:
        """Attach a reader that has everything up to `after`. It must be closed."""
        taken = self._let_go + sum(len(event.body) for event in self._events[: max(0, after - self._first + 1)])
        reader = Reader(self, after, taken)
        self._readers.add(reader)
        self._room.set()
        return reader

    def page(self, after: int) -> Sequence[Logged]:
        start = after - self._first + 1
        return [Logged(Cursor(after + at), event) for at, event in enumerate(self._events[start : start + _PAGE], 1)]

    def snapshot(self, *, upto: int | None = None, history_length: int | None = None) -> bytes:
        """The Task after the event `upto`, or as of now."""
        end = self.end if upto is None or upto < self._first else upto
        if end == 1 and self._first == 1 and not self._turns and history_length is None:
            return self._events[0].body
        task = dict(self._rest) if self._rest is not None else None
        turns = [turn for turn in self._turns if turn[0] <= end]
        for at, event in enumerate(self._events[: end - self._first + 1], self._first):
            while task is not None and turns and turns[0][0] < at:
                add_turn(task, turns.pop(0)[1])
            task = fold(task, event.kind, parse(event.body))
        assert task is not None
        for _, message in turns:
            add_turn(task, message)
        trim_history(task, history_length)
        return dump(task)

    # --- making room

    def progress(self) -> None:
        self._room.set()

    def detach(self, reader: Reader) -> None:
        self._readers.discard(reader)
        self._room.set()

    def _make_room(self) -> None:
        if not self._readers:
            return
        passed = min(reader.taken for reader in self._readers) - self._cap // 2
        count, gone = 0, 0
        for event in self._events:
            if self._let_go + gone + len(event.body) > passed:
                break
            gone += len(event.body)
            count += 1
        if count:
            self._rest = self._rest_after(self._events[:count])
            del self._events[:count]
            self._first += count
            self._let_go += gone
            self.size -= gone

    def _rest_after(self, gone: Sequence[Event]) -> JsonObject:
        """What a snapshot still says of events that were let go: the state and the caller's turns, no results."""
        rest = self._rest
        for event in gone:
            if event.kind is EventKind.TASK:
                rest = parse(event.body)
            elif event.kind is EventKind.STATUS and rest is not None:
                rest["status"] = parse(event.body)["status"]
        assert rest is not None
        until = self._first + len(gone)
        rest["history"] = [*rest["history"], *(message for after, message in self._turns if after < until)]
        self._turns = [turn for turn in self._turns if turn[0] >= until]
        rest["metadata"] = {"rolecall": {"eventsLetGo": until - 1}}
        return rest


class Reader:
    """One that follows a log. What `batch` gave counts as received when the next batch is asked for."""

    def __init__(self, log: TaskLog, after: int, taken: int) -> None:
        self._log = log
        self._position = after
        self._handed = 0
        self.taken = taken
        self._wake = asyncio.Event()
        self._stopped = False

    async def batch(self, idle: float) -> Sequence[Logged] | None:
        """Events, at most a page; empty when none came for `idle` seconds; None at the end of the turn or after `stop`."""
        if self._handed:
            self.taken += self._handed
            self._handed = 0
            self._log.progress()
        if not self._stopped and self._position == self._log.end and not self._log.resting:
            await self._sleep(idle)
        if self._stopped:
            return None
        events = self._log.page(self._position)
        if events:
            self._position = events[-1].cursor
            self._handed = sum(len(logged.event.body) for logged in events)
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
