"""Push configs and the outbox of the memory engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import NamedTuple

from hub.ports.clock import Clock
from hub.ports.pushes import DeliveryClaim
from hub.storage.common.cached_task import CachedTask
from hub.storage.common.dead_letters import LetterMark, page_of
from hub.storage.common.notifier import Notifier
from rolecall.errors import DeadLetterNotFound, PushConfigNotFound, TaskNotFound, TooManyPushConfigs
from rolecall.model.ids import START, Caller, Cursor, TaskId
from rolecall.model.push import DeadLetter, DeadPage, SealedConfig


class _Key(NamedTuple):
    """`only` is 0, or the one event that is sent once more."""

    task: TaskId
    config: str
    only: Cursor = START


@dataclass(slots=True)
class _Delivery:
    """A row of the outbox. `at`: held until then, or not due before."""

    host: str
    sent: Cursor
    since: float
    at: float
    fence: int
    held: bool = False
    failures: int = 0
    failed: float | None = None


@dataclass(slots=True)
class _Kept:
    """All that is kept of one task. `tried`: when somebody was last told of it, or is to be."""

    configs: dict[str, SealedConfig] = field(default_factory=dict)
    deliveries: dict[_Key, _Delivery] = field(default_factory=dict)
    letters: dict[_Key, DeadLetter] = field(default_factory=dict)
    tried: float = 0.0


class MemoryPushes:
    def __init__(self, held: dict[TaskId, CachedTask], clock: Clock) -> None:
        self._held = held
        self._clock = clock
        self._owed = Notifier()
        self._kept: dict[TaskId, _Kept] = {}
        self._due: dict[_Key, _Delivery] = {}
        self._fences = count(1)
        self._turn = ""

    async def set(self, caller: Caller, config: SealedConfig, *, most: int) -> None:
        held = self._own(caller, config.task)
        kept = self._kept.setdefault(config.task, _Kept())
        if config.id not in kept.configs and len(kept.configs) >= most:
            raise TooManyPushConfigs(most)
        kept.configs[config.id] = config
        held.pushes = True
        key, start = _Key(config.task, config.id), Cursor(held.end - 1 if held.closed else held.end)
        known = kept.deliveries.get(key)
        self._owe(kept, key, start if known is None else Cursor(min(known.sent, start)))
        for other in [k for k in kept.deliveries if k.config == config.id and k.only]:
            self._owe(kept, other, kept.deliveries[other].sent)
        self._note(config.task)
        self._owed.give()

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        for found in await self.list(caller, task):
            if found.id == config:
                return found
        raise PushConfigNotFound

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        self._own(caller, task)
        kept = self._kept.get(task)
        return tuple(kept.configs.values()) if kept is not None else ()

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        self._own(caller, task)
        kept = self._kept.get(task)
        if kept is not None:
            kept.configs.pop(config, None)
            kept.letters = {key: letter for key, letter in kept.letters.items() if key.config != config}
            for key in [key for key in kept.deliveries if key.config == config]:
                self._settle(kept, key)

    def on_due(self, wake: Callable[[], None]) -> None:
        self._owed.listen(wake)

    async def claim(self, most: int, lease: timedelta, *, at_once: int, busy: Mapping[str, int]) -> Sequence[DeliveryClaim]:
        now = self._clock.monotonic()
        due: dict[str, list[_Key]] = {}
        for key, delivery in sorted(self._due.items(), key=lambda item: item[1].at):
            if delivery.at <= now:
                due.setdefault(delivery.host, []).append(key)
        claims: list[DeliveryClaim] = []
        for host in sorted(due, key=lambda host: (host <= self._turn, host)):
            if len(claims) >= most:
                break
            self._turn = host
            room = min(most - len(claims), at_once - busy.get(host, 0))
            claims += [self._take(key, now, lease) for key in due[host][: max(0, room)]]
        return claims

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        delivery = self._mine(claim)
        if delivery is None:
            return None
        delivery.failures, delivery.failed = 0, None
        self._kept[claim.config.task].letters.pop(_key(claim), None)
        return self._go_on(claim, delivery, upto, hold)

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        delivery = self._mine(claim)
        if delivery is None:
            return None
        task, config = claim.config.task, claim.config.id
        letter = DeadLetter(task, config, cursor, claim.config.url, reason, self._clock.wall())
        self._kept[task].letters[_Key(task, config, cursor)] = letter
        self._note(task)
        return self._go_on(claim, delivery, cursor, hold)

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        delivery = self._mine(claim)
        if delivery is not None:
            now = self._clock.monotonic()
            delivery.held, delivery.at = False, now + retry_in.total_seconds()
            delivery.failures += 1
            delivery.failed = now if delivery.failed is None else delivery.failed
            self._note(claim.config.task, retry_in)

    async def release(self, claim: DeliveryClaim) -> None:
        delivery = self._mine(claim)
        if delivery is not None:
            delivery.held, delivery.at = False, self._clock.monotonic()
            self._owed.give()

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        mark = LetterMark.parse(before) if before is not None else None
        mine = [
            letter._replace(url=kept.configs[letter.config].url)
            for task, kept in self._kept.items()
            if kept.letters and self._is_his(task, caller, whole)
            for letter in kept.letters.values()
            if mark is None or LetterMark.of(letter) < mark
        ]
        mine.sort(key=LetterMark.of, reverse=True)
        return page_of(mine[: limit + 1], limit)

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        held = self._held.get(task)
        if held is None or held.hidden or not self._is_his(task, caller, whole=True):
            raise TaskNotFound
        kept, key = self._kept.get(task), _Key(task, config, cursor)
        if kept is None or key not in kept.letters:
            raise DeadLetterNotFound
        known = kept.deliveries.get(key)
        if known is None or not known.held:
            self._owe(kept, key, Cursor(cursor - 1))
        self._note(task)
        self._owed.give()

    # --- the other parts of this engine

    def grown(self, task: TaskId) -> None:
        """To be told of every append to a task that has configs."""
        kept = self._kept.get(task)
        if kept is not None:
            for key in kept.deliveries:
                self._look_at(kept, key)
            self._owed.give()

    def forget(self, task: TaskId) -> None:
        kept = self._kept.pop(task, None)
        if kept is not None:
            for key in kept.deliveries:
                self._due.pop(key, None)

    def tried(self, task: TaskId) -> float:
        kept = self._kept.get(task)
        return kept.tried if kept is not None else 0.0

    # --- pieces

    def _own(self, caller: Caller, task: TaskId) -> CachedTask:
        held = self._held.get(task)
        if held is None:
            raise TaskNotFound
        held.seen_by(caller)
        return held

    def _is_his(self, task: TaskId, caller: Caller, whole: bool) -> bool:
        """`whole`: his workspace's is his."""
        whose = self._held[task].row.caller
        return whose.workspace == caller.workspace if whole else whose == caller

    def _last(self, key: _Key) -> Cursor:
        held = self._held[key.task]
        return key.only or (START if held.hidden else held.end)

    def _owe(self, kept: _Kept, key: _Key, sent: Cursor) -> None:
        """Afresh; whoever held it loses it."""
        now = self._clock.monotonic()
        kept.deliveries[key] = _Delivery(kept.configs[key.config].host, sent, now, now, next(self._fences))
        self._due.pop(key, None)
        self._look_at(kept, key)

    def _look_at(self, kept: _Kept, key: _Key) -> None:
        """Is something owed?"""
        delivery = kept.deliveries[key]
        if delivery.sent >= self._last(key):
            self._due.pop(key, None)
        elif key not in self._due:
            self._due[key] = delivery
            delivery.since = self._clock.monotonic()

    def _take(self, key: _Key, now: float, lease: timedelta) -> DeliveryClaim:
        delivery = self._due[key]
        delivery.held, delivery.at, delivery.fence = True, now + lease.total_seconds(), next(self._fences)
        return DeliveryClaim(
            caller=self._held[key.task].row.caller,
            config=self._kept[key.task].configs[key.config],
            only=key.only > START,
            sent=delivery.sent,
            last=self._last(key),
            failures=delivery.failures,
            failing_for=timedelta(seconds=now - delivery.failed if delivery.failed is not None else 0.0),
            waiting_for=timedelta(seconds=now - delivery.since),
            fence=delivery.fence,
        )

    def _mine(self, claim: DeliveryClaim) -> _Delivery | None:
        kept = self._kept.get(claim.config.task)
        delivery = kept.deliveries.get(_key(claim)) if kept is not None else None
        return delivery if delivery is not None and delivery.held and delivery.fence == claim.fence else None

    def _go_on(self, claim: DeliveryClaim, delivery: _Delivery, upto: Cursor, hold: timedelta) -> Cursor | None:
        key, kept = _key(claim), self._kept[claim.config.task]
        last = self._last(key)
        delivery.sent = upto
        delivery.held = bool(hold) and upto < last
        delivery.at = self._clock.monotonic() + (hold.total_seconds() if delivery.held else 0.0)
        self._look_at(kept, key)
        if key.only:
            self._settle(kept, key)
        return last if delivery.held else None

    def _settle(self, kept: _Kept, key: _Key) -> None:
        del kept.deliveries[key]
        self._due.pop(key, None)

    def _note(self, task: TaskId, ahead: timedelta = timedelta()) -> None:
        kept = self._kept[task]
        kept.tried = max(kept.tried, self._clock.wall() + ahead.total_seconds())


def _key(claim: DeliveryClaim) -> _Key:
    return _Key(claim.config.task, claim.config.id, claim.last if claim.only else START)
