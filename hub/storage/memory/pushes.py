"""Push configs and the outbox of the memory engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import NamedTuple

from hub.ports.clock import Clock
from hub.ports.state.pushes import DeliveryClaim, DeliveryRoom
from hub.storage.common.cached_task import CachedTask
from hub.storage.common.dead_letters import LetterMark, page_of
from hub.storage.common.notifier import Notifier
from hub.storage.common.turns import RoomLeft, Turns
from rolecall.errors import DeadLetterNotFound, PushConfigNotFound, TaskNotFound, TooManyPushConfigs
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.push import Backlog, DeadLetter, DeadPage, SealedConfig
from rolecall.model.task import COUNTED


class _Key(NamedTuple):
    """`only` is 0, or the one event that is redelivered."""

    task: TaskId
    config: str
    only: Cursor = START


@dataclass(slots=True)
class _Delivery:
    """A row of the outbox. `at`: claimed until then, or not due before."""

    host: str
    sent: Cursor
    since: float
    at: float
    fence: int
    claimed: bool = False
    failures: int = 0
    failed: float | None = None


@dataclass(slots=True)
class _TaskPushes:
    """The push state of one task. `last_attempt`: time of the last or the next delivery attempt."""

    configs: dict[str, SealedConfig] = field(default_factory=dict)
    deliveries: dict[_Key, _Delivery] = field(default_factory=dict)
    letters: dict[_Key, DeadLetter] = field(default_factory=dict)
    last_attempt: float = 0.0


class MemoryPushes:
    def __init__(self, tasks: dict[TaskId, CachedTask], clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._notifier = Notifier()
        self._by_task: dict[TaskId, _TaskPushes] = {}
        self._due: dict[_Key, _Delivery] = {}
        self._next_fence = count(1)
        self._turns = Turns()

    async def set(self, caller: Caller, config: SealedConfig, *, limit: int, newest: bool = False) -> None:
        cached = self._own_task(caller, config.task)
        pushes = self._by_task.setdefault(config.task, _TaskPushes())
        if config.id not in pushes.configs and len(pushes.configs) >= limit:
            raise TooManyPushConfigs(limit)
        pushes.configs[config.id] = config
        cached.pushes = True
        last = cached.closed or newest
        key, start = _Key(config.task, config.id), Cursor(max(cached.end - 1, START) if last else cached.end)
        known = pushes.deliveries.get(key)
        self._restart_delivery(pushes, key, start if known is None else Cursor(min(known.sent, start)))
        for other in [k for k in pushes.deliveries if k.config == config.id and k.only]:
            self._restart_delivery(pushes, other, pushes.deliveries[other].sent)
        self._note_attempt(config.task)
        self._notifier.notify()

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        for found in await self.list(caller, task):
            if found.id == config:
                return found
        raise PushConfigNotFound

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        self._own_task(caller, task)
        pushes = self._by_task.get(task)
        return tuple(pushes.configs.values()) if pushes is not None else ()

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        self._own_task(caller, task)
        pushes = self._by_task.get(task)
        if pushes is not None:
            pushes.configs.pop(config, None)
            pushes.letters = {key: letter for key, letter in pushes.letters.items() if key.config != config}
            for key in [key for key in pushes.deliveries if key.config == config]:
                self._remove(pushes, key)

    def on_due(self, wake: Callable[[], None]) -> None:
        self._notifier.listen(wake)

    async def claim(self, room: DeliveryRoom, lease: timedelta) -> Sequence[DeliveryClaim]:
        now, left = self._clock.monotonic(), RoomLeft(room)
        due: dict[str, dict[str, list[_Key]]] = {}
        for key, delivery in sorted(self._due.items(), key=lambda item: item[1].at):
            if delivery.at <= now:
                workspace = self._tasks[key.task].row.caller.workspace
                due.setdefault(workspace, {}).setdefault(delivery.host, []).append(key)
        claims: list[DeliveryClaim] = []
        for workspace, host in self._turns.begin(
            lambda after: _next(due, after), lambda workspace, after: _next(due[workspace], after)
        ):
            keys = due[workspace][host][: left.of(workspace, host)]
            left.take(workspace, len(keys))
            claims += [self._claim(key, now, lease) for key in keys]
            if not left.total:
                break
        return claims

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        delivery = self._claimed_delivery(claim)
        if delivery is None:
            return None
        delivery.failures, delivery.failed = 0, None
        self._by_task[claim.config.task].letters.pop(_key(claim), None)
        return self._advance(claim, delivery, upto, hold)

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        delivery = self._claimed_delivery(claim)
        if delivery is None:
            return None
        task, config = claim.config.task, claim.config.id
        letter = DeadLetter(task, config, cursor, claim.config.url, reason, self._clock.wall())
        self._by_task[task].letters[_Key(task, config, cursor)] = letter
        self._note_attempt(task)
        return self._advance(claim, delivery, cursor, hold)

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        delivery = self._claimed_delivery(claim)
        if delivery is not None:
            now = self._clock.monotonic()
            delivery.claimed, delivery.at = False, now + retry_in.total_seconds()
            delivery.failures += 1
            delivery.failed = now if delivery.failed is None else delivery.failed
            self._note_attempt(claim.config.task, retry_in)

    async def release(self, claim: DeliveryClaim) -> None:
        delivery = self._claimed_delivery(claim)
        if delivery is not None:
            delivery.claimed, delivery.at = False, self._clock.monotonic()
            self._notifier.notify()

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        mark = LetterMark.parse(before) if before is not None else None
        letters = [
            letter._replace(url=pushes.configs[letter.config].url)
            for task, pushes in self._by_task.items()
            if pushes.letters and self._may_see(task, caller, whole)
            for letter in pushes.letters.values()
            if mark is None or LetterMark.of(letter) < mark
        ]
        letters.sort(key=LetterMark.of, reverse=True)
        return page_of(letters[: limit + 1], limit)

    async def backlog(self) -> Backlog:
        letters = sum(len(pushes.letters) for pushes in self._by_task.values())
        return Backlog(min(len(self._due), COUNTED), min(letters, COUNTED))

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        cached = self._tasks.get(task)
        if cached is None or cached.hidden or not self._may_see(task, caller, whole=True):
            raise TaskNotFound
        pushes, key = self._by_task.get(task), _Key(task, config, cursor)
        if pushes is None or key not in pushes.letters:
            raise DeadLetterNotFound
        known = pushes.deliveries.get(key)
        if known is None or not known.claimed:
            self._restart_delivery(pushes, key, Cursor(cursor - 1))
        self._note_attempt(task)
        self._notifier.notify()

    # --- calls from the other parts of the engine

    def on_append(self, task: TaskId) -> None:
        """Called after every append to a task that has push configs."""
        pushes = self._by_task.get(task)
        if pushes is not None:
            for key in pushes.deliveries:
                self._update_due(pushes, key)
            self._notifier.notify()

    def forget(self, task: TaskId) -> None:
        pushes = self._by_task.pop(task, None)
        if pushes is not None:
            for key in pushes.deliveries:
                self._due.pop(key, None)

    def last_attempt(self, task: TaskId) -> float:
        pushes = self._by_task.get(task)
        return pushes.last_attempt if pushes is not None else 0.0

    # --- internals

    def _own_task(self, caller: Caller, task: TaskId) -> CachedTask:
        cached = self._tasks.get(task)
        if cached is None:
            raise TaskNotFound
        cached.seen_by(caller)
        return cached

    def _may_see(self, task: TaskId, caller: Caller, whole: bool) -> bool:
        """`whole`: the caller may see every task of its workspace."""
        owner = self._tasks[task].row.caller
        return owner.workspace == caller.workspace if whole else owner == caller

    def _last_owed(self, key: _Key) -> Cursor:
        cached = self._tasks[key.task]
        return key.only or (START if cached.hidden else cached.end)

    def _restart_delivery(self, pushes: _TaskPushes, key: _Key, sent: Cursor) -> None:
        """Create or reset a delivery. A current claim on it becomes void."""
        now = self._clock.monotonic()
        pushes.deliveries[key] = _Delivery(pushes.configs[key.config].host, sent, now, now, next(self._next_fence))
        self._due.pop(key, None)
        self._update_due(pushes, key)

    def _update_due(self, pushes: _TaskPushes, key: _Key) -> None:
        """Add the delivery to the due ones, or remove it, depending on whether events are owed."""
        delivery = pushes.deliveries[key]
        if delivery.sent >= self._last_owed(key):
            self._due.pop(key, None)
        elif key not in self._due:
            self._due[key] = delivery
            delivery.since = self._clock.monotonic()

    def _claim(self, key: _Key, now: float, lease: timedelta) -> DeliveryClaim:
        delivery = self._due[key]
        delivery.claimed, delivery.at, delivery.fence = True, now + lease.total_seconds(), next(self._next_fence)
        return DeliveryClaim(
            caller=self._tasks[key.task].row.caller,
            config=self._by_task[key.task].configs[key.config],
            only=key.only > START,
            sent=delivery.sent,
            last=self._last_owed(key),
            failures=delivery.failures,
            failing_for=timedelta(seconds=now - delivery.failed if delivery.failed is not None else 0.0),
            waiting_for=timedelta(seconds=now - delivery.since),
            fence=delivery.fence,
        )

    def _claimed_delivery(self, claim: DeliveryClaim) -> _Delivery | None:
        pushes = self._by_task.get(claim.config.task)
        delivery = pushes.deliveries.get(_key(claim)) if pushes is not None else None
        return delivery if delivery is not None and delivery.claimed and delivery.fence == claim.fence else None

    def _advance(self, claim: DeliveryClaim, delivery: _Delivery, upto: Cursor, hold: timedelta) -> Cursor | None:
        key, pushes = _key(claim), self._by_task[claim.config.task]
        last = self._last_owed(key)
        delivery.sent = upto
        delivery.claimed = bool(hold) and upto < last
        delivery.at = self._clock.monotonic() + (hold.total_seconds() if delivery.claimed else 0.0)
        self._update_due(pushes, key)
        if key.only:
            self._remove(pushes, key)
        return last if delivery.claimed else None

    def _remove(self, pushes: _TaskPushes, key: _Key) -> None:
        del pushes.deliveries[key]
        self._due.pop(key, None)

    def _note_attempt(self, task: TaskId, retry_in: timedelta = timedelta()) -> None:
        pushes = self._by_task[task]
        pushes.last_attempt = max(pushes.last_attempt, self._clock.wall() + retry_in.total_seconds())


def _next(names: Iterable[str], after: str) -> str | None:
    return min((name for name in names if name > after), default=None)


def _key(claim: DeliveryClaim) -> _Key:
    return _Key(claim.config.task, claim.config.id, claim.last if claim.only else START)
