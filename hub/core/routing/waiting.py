"""Calls that wait for a worker. Nothing runs for them until a worker of theirs may have a free place.

They wait in the order in which they came, by the name that they want: a role, or one instance; those that want a skill of it
too wait apart, by that skill. A free place wakes the first one, which tries to get it; if it does, it wakes the next. So as
many are woken as there are places, each in a turn of the loop of its own.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from hub.core.routing.router import Route
from hub.ports.state.registry import Registry
from rolecall.errors import ClientDisconnected, NoLiveWorker, RoleUnknown, WorkerBusy
from rolecall.model.ids import WorkerId

MayCome = RoleUnknown | NoLiveWorker | WorkerBusy
"""Why there is no worker now, though there may be one later."""
_Key = tuple[str, str, str]
"""The workspace, the name, and the skill, if there is one."""
_IDLE = timedelta(minutes=1)


class WaitingCalls:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._queues: dict[_Key, _Queue] = {}
        self._skills: dict[tuple[str, str], set[str]] = {}
        """Those that calls for a name wait for."""

    async def place(
        self,
        workspace: str,
        refusal: MayCome,
        choose: Callable[[], Awaitable[Route]],
        find: Callable[[], Awaitable[object | None]],
        *,
        within: float,
        on_disconnect: Callable[[Callable[[], None]], None] | None,
    ) -> Route | None:
        """`refusal`: of the first try. None: `find` has found an earlier call with the same name, so it does not wait. Raises
        the last refusal when the time is over or the hub stops; ClientDisconnected.
        """
        call = _WaitingCall()
        if on_disconnect is not None:
            on_disconnect(call.leave)
        queue = self._join(workspace, refusal, call)
        end = asyncio.get_running_loop().call_later(within, call.end)
        try:
            if await find() is not None:
                return None
            while True:
                await call.awake
                call.sleep()  # what wakes it from now on counts for the next wait
                if call.gone:
                    raise ClientDisconnected
                if call.over:
                    raise refusal
                try:
                    return await choose()
                except (RoleUnknown, NoLiveWorker, WorkerBusy) as error:
                    refusal = error.copy()
                    if _key_of(workspace, refusal) == queue.key:
                        queue.try_later()
                    else:
                        self._leave(queue, call)
                        queue = self._join(workspace, refusal, call)
        finally:
            end.cancel()
            self._leave(queue, call)

    def wake(self, workspace: str, worker: WorkerId) -> None:
        """That worker may take a call now. Constant time, and some for each of its skills."""
        if self._queues:
            for name in (worker.role, str(worker)):
                for skill in ("", *self._waited_for(workspace, name, worker)):
                    queue = self._queues.get((workspace, name, skill))
                    if queue is not None:
                        queue.wake()

    def _waited_for(self, workspace: str, name: str, worker: WorkerId) -> Collection[str]:
        """The skills that the worker may have, and that calls for the name wait for."""
        skills = self._skills.get((workspace, name), ())
        registration = self._registry.get(workspace, worker) if skills else None
        if registration is None or not registration.offer.declared_skills:
            return tuple(skills)
        return [skill for skill in registration.offer.skill_names if skill in skills]

    async def watch(self) -> None:
        """Run forever: wake calls when the registry changes."""
        changes = self._registry.changes(None, after=None, idle=_IDLE)
        try:
            async for batch in changes:
                for change in batch:
                    self.wake(change.workspace, change.worker)
        finally:
            changes.stop()

    def stop(self) -> None:
        """The hub shuts down: all that wait get their last refusal."""
        for queue in self._queues.values():
            for call in queue.calls:
                call.end()

    def _join(self, workspace: str, refusal: MayCome, call: _WaitingCall) -> _Queue:
        key = _key_of(workspace, refusal)
        queue = self._queues.setdefault(key, _Queue(key))
        queue.calls[call] = None
        if key[2]:
            self._skills.setdefault(key[:2], set()).add(key[2])
        return queue

    def _leave(self, queue: _Queue, call: _WaitingCall) -> None:
        queue.remove(call)
        if not queue.calls and self._queues.pop(queue.key, None) is not None and queue.key[2]:
            skills = self._skills[queue.key[:2]]
            skills.discard(queue.key[2])
            if not skills:
                del self._skills[queue.key[:2]]


class _Queue:
    """The calls that wait for one name, in order. One of them at a time tries to get a place."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.calls: OrderedDict[_WaitingCall, None] = OrderedDict()
        self._next: _WaitingCall | None = None
        self._again = False
        """There may be another place since this one tries."""

    def wake(self) -> None:
        if self._next is not None:
            self._again = True
        elif self.calls:
            self._again = False
            self._next = next(iter(self.calls))
            self._next.wake()

    def try_later(self) -> None:
        """The one that tried got no place, and keeps its position."""
        self._next = None
        if self._again:
            self.wake()

    def remove(self, call: _WaitingCall) -> None:
        """If it was the one that tried, it has a place, or leaves the chance to the next."""
        self.calls.pop(call, None)
        if self._next is call:
            self._next = None
            self.wake()


class _WaitingCall:
    """`awake`: done when it has been woken."""

    __slots__ = ("awake", "gone", "over")

    def __init__(self) -> None:
        self.gone = False
        self.over = False
        self.sleep()

    def sleep(self) -> None:
        self.awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        if not self.awake.done():
            self.awake.set_result(None)

    def leave(self) -> None:
        """Its caller has disconnected."""
        self.gone = True
        self.wake()

    def end(self) -> None:
        """It shall wait no longer."""
        self.over = True
        self.wake()


def _key_of(workspace: str, refusal: MayCome) -> _Key:
    name = refusal.name if isinstance(refusal, NoLiveWorker) else refusal.role
    return workspace, name, refusal.skill
