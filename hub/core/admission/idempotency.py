"""Makes a repeated message the same call: the repeat gets the first one's task and answer.

A call is recognised by a name: the caller's `Idempotency-Key`, else the caller, the role in the path, and the whole content of
the message. Ids alone are not enough, since people retype examples. The store has one row per name, written together with
the task or the answer, and this row decides. It goes when the call is taken back, or a while after its task has ended. In
memory are only the calls that are being admitted or run now: their repeats wait for the first one.

In a dialect whose messages have no ids, the caller's alias of the task is the name: a repeat of the task's last message is the
same call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from hub.core.relay.start_signal import StartSignal
from hub.core.tasks.lookup import TaskLookup, alias_digest
from hub.core.tasks.reader import OnDisconnect
from hub.ports.clock import Clock
from hub.ports.state.task_store import TaskStore
from rolecall.errors import BrokenOff, HubError, KeyConflict, RequestError, RouteError
from rolecall.model.a2a import PAUSED
from rolecall.model.call import CallName, digest
from rolecall.model.command import Send
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.task import Turn
from rolecall.model.value import Value, replace

_BY_KEY = "#"
"""In place of a role, for a key that the caller chose; no role has this name."""
_WITHIN = "^"
"""Before the task that a worker makes the call in. What it calls there is no call that it or its caller makes elsewhere."""


class Call(Value, frozen=True, gc=True):
    """One admitted message: its task, and where in the task's log its answer begins. `relay`: the one that brings it, which
    refers to its calls until it is over. `repeated`: the message had come before.
    """

    task: TaskId
    role: str
    began: Cursor
    relay: Relay | None
    repeated: bool = False

    async def started(self, on_disconnect: OnDisconnect | None = None) -> None:
        """Wait until the worker has begun to answer, or raise the error why it has not; it names the task, unless nothing ran.
        Several callers may wait. ClientDisconnected.
        """
        if self.relay is None:
            return
        try:
            await self.relay.started.wait(on_disconnect)
        except HubError as error:
            if not self.relay.taken_back:
                error.task = self.task
            raise


Find = Callable[[], Awaitable[Call | None]]
"""The stored call that has the name of this one."""
Start = Callable[[Find], Awaitable[Call | None]]
"""Starts a new call. None: the store knows its name."""


class CallNames(Value, frozen=True):
    """`own`: of this message; None if only the alias identifies it. `alias`: of the task. `of_task`, `of_answer`: those under
    which a new task or an answer is stored.
    """

    own: CallName | None
    alias: CallName | None
    of_task: Sequence[CallName]
    of_answer: Sequence[CallName]


def names_of(caller: Caller, send: Send, turn: Turn) -> CallNames:
    content = digest(turn.params) if send.alias or send.key is not None else b""
    alias = CallName(alias_digest(caller, send.alias), content) if send.alias else None
    within = () if send.parent is None else (_WITHIN + send.parent.task,)
    if send.key is not None:
        own = CallName(digest(*caller, *within, _BY_KEY, send.key), content)
    elif alias is not None:
        return CallNames(None, alias, (alias,), ())
    else:
        own = CallName(digest(*caller, *within, send.target.path_role or "", turn.params))
    return CallNames(own, alias, (own,) if alias is None else (own, alias), (own,))


class _Admission(StartSignal):
    """A call that is being admitted, or runs."""

    __slots__ = ("_call", "_content")

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    async def call(self, content: bytes, on_disconnect: OnDisconnect | None) -> Call:
        """Raises the error that prevented its admission. KeyConflict if it has other content. ClientDisconnected."""
        await self.wait(on_disconnect)
        if content != self._content:
            raise KeyConflict
        return replace(self._call, repeated=True)

    def succeed(self, call: Call) -> None:
        self._call = call
        self.happen()

    async def over(self, on_disconnect: OnDisconnect | None) -> None:
        """Wait until it is admitted or refused. ClientDisconnected."""
        try:
            await self.wait(on_disconnect)
        except HubError:
            pass


class Idempotency:
    def __init__(self, tasks: TaskStore, relays: Relays, lookup: TaskLookup, clock: Clock, window: timedelta) -> None:
        """`window`: how long after its task's end a message is still recognised."""
        self._tasks = tasks
        self._relays = relays
        self._lookup = lookup
        self._clock = clock
        self._window = window
        self._known: dict[bytes, _Admission] = {}
        """By the digest of the name: at most as many as there are calls under way and open tasks."""

    def __len__(self) -> int:
        return len(self._known)

    async def once(
        self,
        caller: Caller,
        send: Send,
        names: CallNames,
        start: Start,
        on_disconnect: OnDisconnect | None = None,
    ) -> Call:
        """The call that has this name, else a new one. While a call is being admitted, its repeats wait, and get the same
        error if it is not admitted. KeyConflict if a key was used for other content. ClientDisconnected: a repeat's caller
        has gone.
        """
        own, alias = names.own, names.alias
        while True:
            if own is not None and (known := self._known.get(own.digest)) is not None:
                return await known.call(own.content, on_disconnect)
            if alias is None or (ahead := self._known.get(alias.digest)) is None:
                break
            # Messages under one alias are admitted one after the other: what a second one means depends on the first.
            await ahead.over(on_disconnect)
        admission = _Admission(own.content if own is not None else b"")
        all_names = names.of_task
        for name in all_names:
            self._known[name.digest] = admission
        try:
            call = await self._find_or_start(caller, send, names, start)
        except BaseException as error:
            self._drop(all_names)
            # If the first caller is cancelled, the waiting ones get BrokenOff: they may try again.
            admission.happen(error if isinstance(error, HubError) else BrokenOff())
            raise
        if own is not None and call.relay is not None and not call.relay.over:
            call.relay.when_over.append(partial(self._drop, (own,)))
            all_names = all_names[1:]
        self._drop(all_names)
        admission.succeed(call)
        return call

    def _drop(self, names: Sequence[CallName]) -> None:
        for name in names:
            self._known.pop(name.digest, None)

    async def _find_or_start(self, caller: Caller, send: Send, names: CallNames, start: Start) -> Call:
        """Most messages are new and go to a role: the store says whether the name is free when it takes the call. For others,
        look first, because starting them affects a task.
        """
        find = partial(self._find, caller, send, names)
        found = await find() if send.alias or send.task_id else None
        while found is None:
            try:
                found = await start(find) or await find()
            except (RouteError, RequestError):
                # A repeat needs no live worker, no free slot and no paused task.
                found = await find()
                if found is None:
                    raise
        return found

    async def _find(self, caller: Caller, send: Send, names: CallNames) -> Call | None:
        """The stored call that has the name. KeyConflict."""
        own, alias = names.own, names.alias
        stored = await self._tasks.find_call(own.digest, remembered=self._window) if own is not None else None
        if own is not None and stored is not None:
            if stored.content != own.content:
                raise KeyConflict
            relay = self._relays.of(stored.task)
            if relay is not None and (relay.over or relay.began != stored.began):
                relay = None  # what it brings is the answer to a later message, or the answer has begun before a restart
            return Call(stored.task, stored.role, stored.began, relay, repeated=True)
        return await self._find_last(caller, send.alias, alias.content) if alias is not None else None

    async def _find_last(self, caller: Caller, alias: str, content: bytes) -> Call | None:
        """The call of the task's last message, if this is a repeat of it. If the task has paused again, it is a new answer
        with the same content.
        """
        row = await self._lookup.known(caller, alias)
        if row is None:
            return None
        turns = await self._tasks.turns(row.id)
        if not turns:
            return None  # it has just been deleted
        relay = self._relays.of(row.id)
        paused_again = len(turns) > 1 and row.state in PAUSED and (relay is None or relay.rests or relay.over)
        long_ended = row.ended and self._clock.wall() - row.updated > self._window.total_seconds()
        if digest(turns[-1].params) != content or paused_again or long_ended:
            return None
        return Call(row.id, row.role, turns[-1].after, relay, repeated=True)
