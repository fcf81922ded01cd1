"""The same message twice is one call: the second gets the first one's task and answer (ruling R7).

A message is the same if its caller, the role that the path names, and its whole content are: ids alone are not enough, since
people retype examples. It is recognised while the first one runs, and for a while after its end.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b

from hub.core.relay.relay import Relay
from hub.core.relay.start_signal import StartSignal
from hub.ports.clock import Clock
from rolecall.errors import BrokenOff, HubError, KeyConflict
from rolecall.model.command import Send
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.task import Turn

_MOST_ENDED = 50_000
_FORGOTTEN_AT_ONCE = 4
_DIGEST = 16
_BY_KEY = "#"
"""In place of a role; no role is called so."""


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


class _Start(StartSignal):
    """A call on its way to being taken on."""

    __slots__ = ("_call",)

    async def call(self) -> Call:
        """Raises what kept it from being taken on."""
        await self.wait()
        return self._call

    def succeed(self, call: Call) -> None:
        self._call = call
        self.happen()


class Idempotency:
    """Of a call that has ended only bytes are left, which the collector of garbage need not look through: there are tens of
    thousands of them.
    """

    def __init__(self, clock: Clock, window: timedelta) -> None:
        self._clock = clock
        self._window = window.total_seconds()
        self._under_way: dict[bytes, _Start] = {}
        self._ended = OrderedDict[bytes, bytes]()
        """In the order of their ends. A plain dict looks for its oldest behind all that have gone before."""

    def __len__(self) -> int:
        return len(self._under_way) + len(self._ended)

    async def once(self, names: tuple[bytes, ...], content: bytes, start: Callable[[], Awaitable[Call]]) -> Call:
        """The call that has one of these names, else a new one. Whoever comes while it is being started waits for it, and
        gets its error if that fails. KeyConflict if the name was given to another content.
        """
        for name in names:
            known = self._under_way.get(name)
            call = await known.call() if known is not None else self._recalled(name)
            if call is not None:
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
            starting.happen(error if isinstance(error, HubError) else BrokenOff())
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

    def _recalled(self, name: bytes) -> Call | None:
        record = self._ended.get(name)
        if record is None or _ended_at(record) <= self._clock.monotonic() - self._window:
            return None
        return _read(record)

    def _note_end(self, call: Call, names: tuple[bytes, ...]) -> None:
        self._drop(names)
        now = self._clock.monotonic()
        record = _record(call, now)
        for name in names:
            self._ended[name] = record
            self._ended.move_to_end(name)
        self._forget(now - self._window)

    def _forget(self, before: float) -> None:
        """The oldest stand first. No more than a few at a time: a burst that ended together is not forgotten together."""
        for _ in range(_FORGOTTEN_AT_ONCE):
            oldest = next(iter(self._ended), None)
            if oldest is None or (len(self._ended) <= _MOST_ENDED and _ended_at(self._ended[oldest]) > before):
                return
            del self._ended[oldest]

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
        return (_belongs(caller, _BY_KEY) + send.key.encode(),)
    if send.alias:
        return ()  # what its caller calls the task tells more
    return (_belongs(caller, send.target.path_role or "") + content,)


def names_after_restart(caller: Caller, role: str, content: bytes) -> tuple[bytes, ...]:
    """Nobody knows any more whether the path named the role."""
    return (_belongs(caller, role) + content, _belongs(caller, "") + content)


@lru_cache(maxsize=4096)
def _belongs(caller: Caller, kind: str) -> bytes:
    """The front of a name. Texts that end in zeros stay apart, whatever stands in them."""
    return b"".join(b"%b\0" % part.encode() for part in (*caller, kind))
