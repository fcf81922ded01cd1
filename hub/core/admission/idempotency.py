"""Makes a repeated message the same call: the repeat gets the first one's task and answer.

Two messages are the same if their caller, the role in the path, and their whole content are equal. Ids alone are not enough,
since people retype examples. A repeat is recognised while the first call runs, and for a while after its end.
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

_ENDED_LIMIT = 50_000
_FORGET_BATCH = 4
_DIGEST = 16
_BY_KEY = "#"
"""In place of a role, for a key that the caller chose; no role has this name."""


class Call:
    """One admitted message: its task, and where in the task's log its answer begins."""

    __slots__ = ("began", "content", "relay", "role", "task")

    def __init__(self, task: TaskId, role: str, began: Cursor, content: bytes, relay: Relay | None) -> None:
        self.task = task
        self.role = role
        self.began = began
        self.content = content
        self.relay = relay

    async def started(self) -> None:
        """Wait until the worker has begun to answer, or raise the error why it has not. Several callers may wait."""
        if self.relay is not None:
            await self.relay.started.wait()


class _Start(StartSignal):
    """A call that is being admitted."""

    __slots__ = ("_call",)

    async def call(self) -> Call:
        """Raises the error that prevented its admission."""
        await self.wait()
        return self._call

    def succeed(self, call: Call) -> None:
        self._call = call
        self.happen()


class Idempotency:
    """Keeps an ended call as bytes: there are tens of thousands of them, and the garbage collector does not scan bytes."""

    def __init__(self, clock: Clock, window: timedelta) -> None:
        self._clock = clock
        self._window = window.total_seconds()
        self._running: dict[bytes, _Start] = {}
        self._ended = OrderedDict[bytes, bytes]()
        """In the order of their ends. Not a plain dict: to find its oldest entry, it steps over every deleted one."""

    def __len__(self) -> int:
        return len(self._running) + len(self._ended)

    async def once(self, keys: tuple[bytes, ...], content: bytes, start: Callable[[], Awaitable[Call]]) -> Call:
        """The call that has one of these keys, else a new one. While a call is being admitted, its repeats wait, and get the
        same error if it is not admitted. KeyConflict if the key was used for other content.
        """
        for key in keys:
            known = self._running.get(key)
            call = await known.call() if known is not None else self._find_ended(key)
            if call is not None:
                if call.content != content:
                    raise KeyConflict
                return call
        starting = _Start()
        for key in keys:
            self._running[key] = starting
        try:
            call = await start()
        except BaseException as error:
            self._drop_running(keys)
            # If the first caller is cancelled, the waiting ones get BrokenOff: they may try again.
            starting.happen(error if isinstance(error, HubError) else BrokenOff())
            raise
        starting.succeed(call)
        self._watch(call, keys)
        return call

    def remember(self, call: Call, keys: tuple[bytes, ...]) -> None:
        """A call that an earlier hub admitted."""
        started = _Start()
        started.succeed(call)
        new = tuple(key for key in keys if key not in self._running and key not in self._ended)
        for key in new:
            self._running[key] = started
        self._watch(call, new)

    def _watch(self, call: Call, keys: tuple[bytes, ...]) -> None:
        relay = call.relay
        if relay is None or relay.over:
            self._note_end(call, keys)
            return

        def over() -> None:
            call.relay = None
            if relay.taken_back:
                self._drop_running(keys)
            else:
                self._note_end(call, keys)

        relay.when_over.append(over)

    def _find_ended(self, key: bytes) -> Call | None:
        record = self._ended.get(key)
        if record is None or _ended_at(record) <= self._clock.monotonic() - self._window:
            return None
        return _read(record)

    def _note_end(self, call: Call, keys: tuple[bytes, ...]) -> None:
        self._drop_running(keys)
        now = self._clock.monotonic()
        record = _record(call, now)
        for key in keys:
            self._ended[key] = record
            self._ended.move_to_end(key)
        self._forget(now - self._window)

    def _forget(self, before: float) -> None:
        """Oldest first, and only a few at a time, so that forgetting a burst does not block the loop."""
        for _ in range(_FORGET_BATCH):
            oldest = next(iter(self._ended), None)
            if oldest is None or (len(self._ended) <= _ENDED_LIMIT and _ended_at(self._ended[oldest]) > before):
                return
            del self._ended[oldest]

    def _drop_running(self, keys: tuple[bytes, ...]) -> None:
        for key in keys:
            self._running.pop(key, None)


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


def keys_of(caller: Caller, send: Send, content: bytes) -> tuple[bytes, ...]:
    """What a message is recognised by: the caller's own key if there is one, else its content."""
    if send.key is not None:
        return (_prefix(caller, _BY_KEY) + send.key.encode(),)
    if send.alias:
        return ()  # the alias identifies the task, see TaskLookup
    return (_prefix(caller, send.target.path_role or "") + content,)


def keys_after_restart(caller: Caller, role: str, content: bytes) -> tuple[bytes, ...]:
    """The store does not hold whether the path named the role, so both keys are used."""
    return (_prefix(caller, role) + content, _prefix(caller, "") + content)


@lru_cache(maxsize=4096)
def _prefix(caller: Caller, scope: str) -> bytes:
    """The prefix of a key. `scope`: the role in the path, or `_BY_KEY`. Each part ends in a zero byte, so that different parts
    cannot give the same prefix.
    """
    return b"".join(b"%b\0" % part.encode() for part in (*caller, scope))
