"""The registry of the SQLite engine: the lease table, and behind it the tables that bring it back after a restart."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from hub.ports.clock import Clock
from hub.storage.common.feed import KEPT
from hub.storage.common.leases import Key, LeaseChange, LeaseRecord, LeaseTable, PendingChange, health_after, record_of
from hub.storage.sqlite.writer import Writer
from rolecall.errors import LeaseUnknown
from rolecall.model.card import Interface
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.worker import Beat, ChangeKind, Health, LeaseProof, Offer, Registration, RegistryChange

# The stored feed is cut this often: a restart finds what it needs, and the table stays small.
CUT_EVERY = 256
# Rows that are written in one piece.
_PIECE = 50
_BEATS_WITHIN = 0.5
"""Seconds that a sweep gives to beats."""
# So many enrol at a time: when thousands come back, calls find room in the same commits.
_ENROLLING = 16

_KEEP = """
insert or replace into lease (workspace, role, instance, owner, epoch, boot, offer, ttl, health, reason, registered_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_KEEP_BEAT = """
insert or replace into beat (workspace, role, instance, epoch, capacity, in_flight, last_seen, expires_at)
values (?, ?, ?, ?, ?, ?, ?, ?)
"""
_LOAD = """
select workspace, role, instance, owner, lease.epoch, boot, offer, ttl, health, reason, registered_at, capacity, in_flight,
  last_seen, expires_at from lease join beat using (workspace, role, instance)
"""
_END = "delete from lease where workspace = ? and role = ? and instance = ?"
_END_BEAT = "delete from beat where workspace = ? and role = ? and instance = ?"
_BEAT = """
update beat set capacity = ?, in_flight = ?, last_seen = ?, expires_at = ?
where workspace = ? and role = ? and instance = ? and epoch = ?
"""
_CHANGE = "insert into change (kind, workspace, role, instance, epoch, health, at) values (?, ?, ?, ?, ?, ?, ?)"
_CHANGES = "select revision, kind, workspace, role, instance, epoch, health, at from change order by revision"
# Epochs that the cut takes with it raise the floor that new names count from.
_RAISE = """
insert into meta (name, value) select 'epoch floor', max(epoch) from change where revision <= ?
on conflict (name) do update set value = max(value, excluded.value)
"""
_CUT = "delete from change where revision <= ?"

_LeaseRows = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Of the tables lease and beat."""


class SqliteRegistry(LeaseTable):
    def __init__(self, clock: Clock, writer: Writer) -> None:
        super().__init__(clock, b"")
        self._writer = writer
        self._beaten: set[Key] = set()
        self._enrolling = asyncio.Semaphore(_ENROLLING)
        # Names with an operation under way: the next one on that name is decided when this one is known.
        self._pending: dict[Key, asyncio.Future[list[list[int]]]] = {}

    async def enrol(
        self, workspace: str, offer: Offer, *, owner: str = "", boot: str, ttl: timedelta, supersede: bool = False
    ) -> Registration:
        key = (workspace, offer.worker)
        comes = self._expect(key, Caller(workspace, owner))
        try:
            async with self._enrolling:
                await self._settled(key)
                step = self.decide_enrol(workspace, offer, owner=owner, boot=boot, ttl=ttl, supersede=supersede)
                if self._is_stored(step):
                    self.apply(step, ())
                    self._beaten.add(step.key)
                else:
                    await self._store([step])
        finally:
            if comes:
                self._has_come(key)
        taken = self._leases.get(step.key)
        if taken is None:
            raise LeaseUnknown
        return taken.registration

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, ttl: timedelta | None = None
    ) -> Registration:
        registration = self.renew(workspace, worker, proof, beat, ttl)
        self._beaten.add((workspace, worker))
        health = health_after(registration, beat)
        if health is not registration.health:
            await self.mark(workspace, worker, registration.epoch, health, "")
        return registration

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        await self._settled((workspace, worker))
        await self._store([self.decide_withdraw(workspace, worker, proof)])

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        await self._settled((workspace, worker))
        step = self.decide_mark(workspace, worker, epoch, health, reason)
        if step is not None:
            await self._store([step])

    async def sweep(self) -> Sequence[Registration]:
        ended: list[Registration] = []
        # In pieces, so that nobody's call waits for all of them.
        expired = [step.key for step in self.decide_expiries()]
        for at in range(0, len(expired), _PIECE):
            ended += await self._end_those(expired[at : at + _PIECE])
        await self._store_beats()
        return ended

    async def _store_beats(self) -> None:
        """They are for the next hub and in no hurry: a fifth of the time is theirs, so that calls find the disk free. What
        takes longer than a sweep may is left to the next.
        """
        keys = sorted(self._beaten)  # neighbours stand on the same pages
        began = self._clock.monotonic()
        for at in range(0, len(keys), _PIECE):
            since = self._clock.monotonic()
            if since - began > _BEATS_WITHIN:
                return
            piece = keys[at : at + _PIECE]
            self._beaten.difference_update(piece)
            try:
                await self._store((), [row for key in piece if (row := self._beat_row(key))])
            except BaseException:
                self._beaten.update(piece)
                raise
            if at + _PIECE < len(keys):
                await asyncio.sleep(4 * (self._clock.monotonic() - since))

    async def _end_those(self, expired: Sequence[Key]) -> Sequence[Registration]:
        """Decided anew, because while other pieces were stored some have enrolled again."""
        steps = [step for key in expired if key not in self._pending and (step := self.decide_expiry(key))]
        ended = [self._leases[step.key].registration for step in steps]
        if steps:
            await self._store(steps)
        return ended

    # --- storing

    async def _settled(self, key: Key) -> None:
        while (pending := self._pending.get(key)) is not None:
            await asyncio.wait([pending])

    async def _store(self, steps: Sequence[LeaseChange], beats: Sequence[tuple[Any, ...]] = ()) -> None:
        """Store, then apply. A caller that gives up does not keep the table from learning what has been stored."""
        rows = [(self._lease_rows(step), [_draft_row(step, draft) for draft in step.drafts]) for step in steps]

        def write(db: sqlite3.Connection) -> list[list[int]]:
            db.executemany(_BEAT, beats)
            return [_write(db, step, *row) for step, row in zip(steps, rows, strict=True)]

        def apply(revisions: list[list[int]]) -> None:
            for step, its in zip(steps, revisions, strict=True):
                self.apply(step, its)

        stored = self._writer.submit(write, apply, brief=True)
        for step in steps:
            self._pending[step.key] = stored
        stored.add_done_callback(lambda _: self._unpend(steps, stored))
        await asyncio.shield(stored)

    def _is_stored(self, step: LeaseChange) -> bool:
        """Who enrols once more as he is has a lease already; it lasts longer now, as after a beat."""
        lease = self._leases.get(step.key)
        return lease is not None and not step.drafts and record_of(lease.registration) == step.terms

    def _unpend(self, steps: Sequence[LeaseChange], stored: asyncio.Future[list[list[int]]]) -> None:
        stored.exception()  # looked at here, because a caller that was cancelled will not
        for step in steps:
            self._pending.pop(step.key, None)

    def _lease_rows(self, step: LeaseChange) -> _LeaseRows | None:
        """None: the lease ends."""
        if step.terms is None:
            return None
        terms, lease = step.terms, self._leases.get(step.key)
        old = lease.registration if lease is not None and lease.registration.epoch == terms.epoch else None
        if step.lasts is not None:
            ends = step.at + step.lasts.total_seconds() if step.lasts else None
        else:
            ends = self._ends(lease.expires) if lease is not None else step.at
        offer = json.dumps(asdict(terms.offer), separators=(",", ":"))
        (workspace, worker), ttl = step.key, terms.ttl.total_seconds()
        name = (workspace, *worker)
        lease_row = (*name, terms.owner, terms.epoch, terms.boot, offer, ttl, terms.health, terms.reason, terms.registered_at)
        beat_row = (*name, terms.epoch, terms.offer.capacity, old.reported_in_flight if old else 0, step.at, ends)
        return lease_row, beat_row

    def _beat_row(self, key: Key) -> tuple[Any, ...] | None:
        lease = self._leases.get(key)
        if lease is None:
            return None
        r = lease.registration
        return (r.offer.capacity, r.reported_in_flight, r.last_seen, self._ends(lease.expires), key[0], *key[1], r.epoch)

    def _ends(self, expires: float) -> float | None:
        """A monotonic instant on the wall clock, the only one that a restart can read."""
        return None if expires == math.inf else self._clock.wall() + expires - self._clock.monotonic()

    # --- coming back

    async def load(self) -> None:
        """Leases get their full time again: nobody could renew while the hub was down. One that ran out meanwhile is a
        suspect: it may be alive, and its running tasks with it.
        """
        secret, floor, leases, changes = await self._writer.submit(_read)
        self._hub_secret, self._floor = secret, floor
        for revision, kind, workspace, role, instance, epoch, health, at in changes:
            worker = WorkerId(role, instance)
            self._ended[workspace, worker] = epoch
            state = Health(health) if health is not None else None
            self._publish(RegistryChange(revision, ChangeKind(kind), workspace, worker, epoch, state, at))
        wall = self._clock.wall()
        doubtful = [step for row in leases if (step := self._bring_back(row, wall))]
        if doubtful:
            await self._store(doubtful)

    def _bring_back(self, row: tuple[Any, ...], wall: float) -> LeaseChange | None:
        workspace, role, instance, owner, epoch, boot, offer, ttl, health, reason, registered_at, *beaten = row
        capacity, in_flight, last_seen, expires_at = beaten
        key, lasts = (workspace, WorkerId(role, instance)), timedelta(seconds=ttl)
        terms = LeaseRecord(_offer(offer, capacity), owner, epoch, boot, lasts, Health(health), reason, registered_at)
        registration = self._take(key, terms, lasts)
        registration.reported_in_flight, registration.last_seen = in_flight, last_seen
        if expires_at is None or expires_at > wall:
            return None
        return self.decide_mark(workspace, key[1], epoch, Health.SUSPECT, "its lease ran out while the hub was down")


def _write(db: sqlite3.Connection, step: LeaseChange, kept: _LeaseRows | None, drafts: list[tuple[Any, ...]]) -> list[int]:
    if kept is None:
        workspace, worker = step.key
        db.execute(_END, (workspace, *worker))
        db.execute(_END_BEAT, (workspace, *worker))
    else:
        lease, beat = kept
        db.execute(_KEEP, lease)
        db.execute(_KEEP_BEAT, beat)
    revisions = [db.execute(_CHANGE, draft).lastrowid or 0 for draft in drafts]
    for revision in revisions:
        if revision % CUT_EVERY == 0 and revision > KEPT:
            db.execute(_RAISE, (revision - KEPT,))
            db.execute(_CUT, (revision - KEPT,))
    return revisions


def _draft_row(step: LeaseChange, draft: PendingChange) -> tuple[Any, ...]:
    workspace, worker = step.key
    return (draft.kind, workspace, *worker, draft.epoch, draft.health, step.at)


def _read(db: sqlite3.Connection) -> tuple[bytes, int, list[Any], list[Any]]:
    db.execute("insert or ignore into meta (name, value) values ('hub secret', randomblob(32)), ('epoch floor', 0)")
    meta = dict(db.execute("select name, value from meta").fetchall())
    return meta["hub secret"], meta["epoch floor"], db.execute(_LOAD).fetchall(), db.execute(_CHANGES).fetchall()


def _offer(text: str, capacity: int | None) -> Offer:
    members = json.loads(text)
    worker, models = WorkerId(*members.pop("worker")), tuple(members.pop("models"))
    networks = tuple(members.pop("networks", ()))
    interfaces = tuple(Interface(*interface) for interface in members.pop("interfaces"))
    read = {"worker": worker, "models": models, "networks": networks, "interfaces": interfaces, "capacity": capacity}
    return Offer(**{**members, **read})
