"""The same message twice is one call: the second gets the first one's task and answer (ruling R7).

A message is the same if its caller, the role that the path names, and its whole content are: ids alone are not enough, since
people retype examples. It is recognised while the first one runs, and for a while after its end.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import blake2b

from hub.core.beginning import Beginning
from hub.core.relay import Relay
from hub.errors import BrokenOff, HubError, KeyConflict
from hub.model.command import Send
from hub.model.ids import Caller, Cursor, TaskId
from hub.model.task import Turn
from hub.ports import Clock

_MOST_ENDED = 50_000
_DIGEST = 16


class Call:
    """One message that was taken on: its task, and where in the task's log its answer begins."""

    __slots__ = ("began", "content", "relay", "role", "task")

    def __init__(self, task: TaskId, role: str, began: Cursor, content: bytes, relay: Relay | None) -> None:
        self.task = task
        self.role = role
        self.began = began
        self.content = content
        self.relay = relay

    async def started(self) -> None:
        """Until the worker has begun to answer, or the error why it has not. Others may wait for the same."""
        if self.relay is not None:
            await self.relay.started.wait()


class _Start:
    """A call on its way to being taken on."""

    __slots__ = ("_call", "_done")

    def __init__(self) -> None:
        self._done = Beginning()
        self._call: Call | None = None

    async def call(self) -> Call:
        """Raises what kept it from being taken on."""
        await self._done.wait()
        assert self._call is not None
        return self._call

    def succeed(self, call: Call) -> None:
        self._call = call
        self._done.happen()

    def fail(self, error: HubError) -> None:
        self._done.happen(error)


class Repeats:
    """Of a call that has ended only bytes are left, which the collector of garbage need not look through: there are tens of
    thousands of them.
    """

    def __init__(self, clock: Clock, window: timedelta) -> None:
        self._clock = clock
        self._window = window.total_seconds()
        self._under_way: dict[bytes, _Start] = {}
        self._ended: dict[bytes, bytes] = {}
        self._oldest: deque[bytes] = deque()
        """The names of those that have ended, in the order of their ends."""

    def __len__(self) -> int:
        return len(self._under_way) + len(self._ended)

    async def once(self, names: tuple[bytes, ...], content: bytes, start: Callable[[], Awaitable[Call]]) -> Call:
        """The call that has one of these names, else a new one. Whoever comes while it is being started waits for it, and
        gets its error if that fails. KeyConflict if the name was given to another content.
        """
        self._sweep()
        for name in names:
            ended = self._ended.get(name)
            known = self._under_way.get(name)
            if ended is not None:
                call = _read(ended)
            elif known is not None:
                call = await known.call()
            else:
                continue
            if call.content != content:
                raise KeyConflict
            return call
        starting = _Start()
        for name in names:
            self._under_way[name] = starting
        try:
            call = await start()
        except BaseException as error:
            self._drop(names)
            # A starter that is cancelled takes nobody with it: the others are told to try again.
            starting.fail(error if isinstance(error, HubError) else BrokenOff())
            raise
        starting.succeed(call)
        self._watch(call, names)
        return call

    def remember(self, call: Call, names: tuple[bytes, ...]) -> None:
        """A call that an earlier hub took on."""
        started = _Start()
        started.succeed(call)
        new = tuple(name for name in names if name not in self._under_way and name not in self._ended)
        for name in new:
            self._under_way[name] = started
        self._watch(call, new)

    def _watch(self, call: Call, names: tuple[bytes, ...]) -> None:
        relay = call.relay
        if relay is None or relay.over:
            self._note_end(call, names)
            return

        def over() -> None:
            call.relay = None
            if relay.taken_back:
                self._drop(names)
            else:
                self._note_end(call, names)

        relay.when_over.append(over)

    def _note_end(self, call: Call, names: tuple[bytes, ...]) -> None:
        self._drop(names)
        record = _record(call, self._clock.monotonic())
        for name in names:
            self._ended[name] = record
            self._oldest.append(name)
        while len(self._oldest) > _MOST_ENDED:
            del self._ended[self._oldest.popleft()]

    def _sweep(self) -> None:
        before = self._clock.monotonic() - self._window
        while self._oldest and _ended_at(self._ended[self._oldest[0]]) <= before:
            del self._ended[self._oldest.popleft()]

    def _drop(self, names: tuple[bytes, ...]) -> None:
        for name in names:
            self._under_way.pop(name, None)


_HEAD = struct.Struct(f"dQ{_DIGEST}s")


def _record(call: Call, at: float) -> bytes:
    return _HEAD.pack(at, call.began, call.content) + f"{call.task}\0{call.role}".encode()


def _ended_at(record: bytes) -> float:
    at: float = _HEAD.unpack_from(record)[0]
    return at


def _read(record: bytes) -> Call:
    _, began, content = _HEAD.unpack_from(record)
    task, _, role = record[_HEAD.size :].decode().partition("\0")
    return Call(TaskId(task), role, Cursor(began), content, None)


def content_of(turn: Turn) -> bytes:
    return blake2b(turn.params, digest_size=_DIGEST).digest()


def names_of(caller: Caller, send: Send, content: bytes) -> tuple[bytes, ...]:
    """What a message may be recognised by: the caller's own key for it where there is one, else its content."""
    if send.key is not None:
        return (_name(caller, "key", send.key.encode()),)
    if send.alias:
        return ()  # what its caller calls the task tells more
    return (_name(caller, send.target.path_role or "", content),)


def names_after_restart(caller: Caller, role: str, content: bytes) -> tuple[bytes, ...]:
    """Nobody knows any more whether the path named the role."""
    return (_name(caller, role, content), _name(caller, "", content))


def _name(caller: Caller, kind: str, text: bytes) -> bytes:
    return blake2b(b"\0".join((*(part.encode() for part in (*caller, kind)), text)), digest_size=_DIGEST).digest()
