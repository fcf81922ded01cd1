"""The registry of the SQLite engine: the lease table, and the SQL tables that restore it after a restart."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from hub.ports.clock import Clock
from hub.storage.common.feed import KEPT
from hub.storage.common.leases import Key, LeaseChange, LeaseRecord, LeaseTable, PendingChange, health_after, record_of
from hub.storage.common.reserve import Reserve
from hub.storage.sqlite.connections.readers import SqliteReader
from hub.storage.sqlite.connections.writer import Writer
from hub.storage.sqlite.tasks.rows import PAUSED_STATE
from rolecall.errors import LeaseUnknown
from rolecall.model.card import Interface
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.worker import Beat, ChangeKind, EndedLease, Health, LeaseProof, Offer, Registration, RegistryChange

# The stored feed is trimmed once per this many changes, so that the table stays small.
TRIM_EVERY = 256
# Rows per write.
_BATCH = 50
_BEATS_SECONDS = 0.5
"""How long one sweep may store beats."""
# Limited, so that calls still share the commits when thousands of workers enrol at once.
_ENROL_LIMIT = 16

_PUT = """
insert or replace into lease (workspace, role, instance, owner, epoch, boot, offer, ttl, health, reason, registered_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_PUT_BEAT = """
insert or replace into beat (workspace, role, instance, epoch, capacity, in_flight, last_seen, expires_at, token)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_LOAD = """
select workspace, role, instance, owner, lease.epoch, boot, offer, ttl, health, reason, registered_at, capacity, in_flight,
  last_seen, expires_at, token from lease join beat using (workspace, role, instance)
"""
_END = "delete from lease where workspace = ? and role = ? and instance = ?"
_END_BEAT = "delete from beat where workspace = ? and role = ? and instance = ?"
_BEAT = """
update beat set capacity = ?, in_flight = ?, last_seen = ?, expires_at = ?, token = ?
where workspace = ? and role = ? and instance = ? and epoch = ?
"""
# A lease that ends, or that is about to be replaced by one of another epoch.
_KEEP_ENDED = """
insert or replace into ended_lease
select workspace, role, instance, lease.epoch, boot, offer, ?, ?, token from lease join beat using (workspace, role, instance)
where workspace = ? and role = ? and instance = ?
"""
_ENDED = "select offer, epoch, boot, withdrawn, token from ended_lease where workspace = ? and role = ? and instance = ?"
_NEXT_REVISION = """
insert into feed (workspace, revision) values (?, 1)
on conflict (workspace) do update set revision = revision + 1 returning revision
"""
_CHANGE = """
insert into change (revision, kind, workspace, role, instance, epoch, health, at, reason) values (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_CHANGES = "select revision, kind, workspace, role, instance, epoch, health, at, reason from change order by place"
# Epochs of trimmed changes raise the floor from which new names count.
_RAISE = """
insert into meta (name, value) select 'epoch floor', max(epoch) from change where place <= ?
on conflict (name) do update set value = max(value, excluded.value)
"""
_TRIM = "delete from change where place <= ?"
_TRIM_ENDED = f"""
delete from ended_lease where place <= ? and not exists (
  select 1 from task where {PAUSED_STATE} and task.workspace = ended_lease.workspace
  and task.worker = ended_lease.role || ':' || ended_lease.instance
)
"""

_LeaseRows = tuple[tuple[Any, ...], tuple[Any, ...]]
"""A row of the table lease and one of the table beat."""


class SqliteRegistry(LeaseTable):
    def __init__(self, clock: Clock, writer: Writer, reader: SqliteReader, reserve: Reserve) -> None:
        super().__init__(clock, b"")
        self._writer = writer
        self._reader = reader
        self._reserve = reserve
        self._beats_to_store: set[Key] = set()
        self._enrolling = asyncio.Semaphore(_ENROL_LIMIT)
        # Names with a write under way: the next operation on that name is decided after it.
        self._pending: dict[Key, asyncio.Future[list[list[int]]]] = {}

    async def enrol(
        self,
        workspace: str,
        offer: Offer,
        *,
        owner: str = "",
        token: str = "",
        boot: str,
        ttl: timedelta,
        supersede: bool = False,
    ) -> Registration:
        key = (workspace, offer.worker)
        counted = self._expect(key, Caller(workspace, owner))
        try:
            async with self._enrolling:
                await self._wait_until_stored(key)
                change = self.decide_enrol(workspace, offer, owner=owner, token=token, boot=boot, ttl=ttl, supersede=supersede)
                if self._is_stored(change):
                    self.apply(change, ())
                    self._beats_to_store.add(change.key)
                else:
                    self._reserve.check()
                    await self._store([change])
        finally:
            if counted:
                self._no_longer_expected(key)
        entry = self._leases.get(change.key)
        if entry is None:
            raise LeaseUnknown
        return entry.registration

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, token: str | None = None
    ) -> Registration:
        registration = self.renew(workspace, worker, proof, beat, token)
        self._beats_to_store.add((workspace, worker))
        health = health_after(registration, beat)
        if health is not registration.health:
            await self.mark(workspace, worker, registration.epoch, health, "")
        return registration

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        await self._wait_until_stored((workspace, worker))
        await self._store([self.decide_withdraw(workspace, worker, proof)])

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        await self._wait_until_stored((workspace, worker))
        change = self.decide_mark(workspace, worker, epoch, health, reason)
        if change is not None:
            await self._store([change])

    async def undrain(self, workspace: str, worker: WorkerId, epoch: int) -> None:
        await self._wait_until_stored((workspace, worker))
        change = self.decide_undrain(workspace, worker, epoch)
        if change is not None:
            await self._store([change])

    async def change_offer(self, workspace: str, worker: WorkerId, epoch: int, change: Callable[[Offer], Offer]) -> None:
        await self._wait_until_stored((workspace, worker))
        decided = self.decide_offer(workspace, worker, epoch, change)
        if decided is not None:
            self._reserve.check()
            await self._store([decided])

    async def ended(self, workspace: str, worker: WorkerId) -> EndedLease | None:
        await self._wait_until_stored((workspace, worker))
        rows = await self._reader.rows(_ENDED, (workspace, *worker))
        if not rows:
            return None
        offer, epoch, boot, withdrawn, token = rows[0]
        return EndedLease(_offer(offer, None), epoch, boot, bool(withdrawn), token)

    async def sweep(self) -> Sequence[Registration]:
        ended: list[Registration] = []
        # In batches, so that no call waits for all of them.
        expired = [change.key for change in self.decide_all_expired()]
        for at in range(0, len(expired), _BATCH):
            ended += await self._end_expired(expired[at : at + _BATCH])
        await self._store_beats()
        return ended

    async def _store_beats(self) -> None:
        """Beats are needed only after a restart, so they are not urgent: they get a fifth of the time, the rest is for calls.
        What does not fit into this sweep is left to the next.
        """
        keys = sorted(self._beats_to_store)  # neighbours are on the same database pages
        started = self._clock.monotonic()
        for at in range(0, len(keys), _BATCH):
            since = self._clock.monotonic()
            if since - started > _BEATS_SECONDS:
                return
            batch = keys[at : at + _BATCH]
            self._beats_to_store.difference_update(batch)
            try:
                await self._store((), [row for key in batch if (row := self._beat_row(key))])
            except BaseException:
                self._beats_to_store.update(batch)
                raise
            if at + _BATCH < len(keys):
                await asyncio.sleep(4 * (self._clock.monotonic() - since))

    async def _end_expired(self, expired: Sequence[Key]) -> Sequence[Registration]:
        """Decided again, because some may have enrolled again while other batches were stored."""
        changes = [change for key in expired if key not in self._pending and (change := self.decide_expired(key))]
        ended = [self._leases[change.key].registration for change in changes]
        if changes:
            await self._store(changes)
        return ended

    # --- storing

    async def _wait_until_stored(self, key: Key) -> None:
        while (pending := self._pending.get(key)) is not None:
            await asyncio.wait([pending])

    async def _store(self, changes: Sequence[LeaseChange], beats: Sequence[tuple[Any, ...]] = ()) -> None:
        """Store, then apply. A stored change is applied even if the caller was cancelled."""
        rows = [(self._lease_rows(change), [_change_row(change, pending) for pending in change.pending]) for change in changes]

        def write(db: sqlite3.Connection) -> list[list[int]]:
            db.executemany(_BEAT, beats)
            return [_write_change(db, change, *row) for change, row in zip(changes, rows, strict=True)]

        def publish(revisions: list[list[int]]) -> None:
            for change, its_revisions in zip(changes, revisions, strict=True):
                self.apply(change, its_revisions)

        stored = self._writer.submit(write, publish, short=True)
        for change in changes:
            self._pending[change.key] = stored
        stored.add_done_callback(lambda _: self._forget_pending(changes, stored))
        await asyncio.shield(stored)

    def _is_stored(self, change: LeaseChange) -> bool:
        """A repeated enrolment without a change only extends the lease, like a beat."""
        lease = self._leases.get(change.key)
        return lease is not None and not change.pending and record_of(lease.registration) == change.record

    def _forget_pending(self, changes: Sequence[LeaseChange], stored: asyncio.Future[list[list[int]]]) -> None:
        stored.exception()  # retrieved here, because a cancelled caller does not
        for change in changes:
            self._pending.pop(change.key, None)

    def _lease_rows(self, change: LeaseChange) -> _LeaseRows | None:
        """None: the lease ends."""
        if change.record is None:
            return None
        record, lease = change.record, self._leases.get(change.key)
        old = lease.registration if lease is not None and lease.registration.epoch == record.epoch else None
        if change.lasts is not None:
            expires_at = change.at + change.lasts.total_seconds() if change.lasts else None
        else:
            expires_at = self._wall_expiry(lease.expires) if lease is not None else change.at
        offer = json.dumps(asdict(record.offer), separators=(",", ":"))
        (workspace, worker), ttl = change.key, record.ttl.total_seconds()
        name = (workspace, *worker)
        lease_row = (
            *name,
            record.owner,
            record.epoch,
            record.boot,
            offer,
            ttl,
            record.health,
            record.reason,
            record.registered_at,
        )
        in_flight, token = (old.other_in_flight, old.token) if old is not None else (0, "")
        if change.lasts is not None:
            token = change.token
        beat_row = (*name, record.epoch, record.offer.capacity, in_flight, change.at, expires_at, token)
        return lease_row, beat_row

    def _beat_row(self, key: Key) -> tuple[Any, ...] | None:
        lease = self._leases.get(key)
        if lease is None:
            return None
        r = lease.registration
        beat = (r.offer.capacity, r.other_in_flight, r.last_seen, self._wall_expiry(lease.expires), r.token)
        return (*beat, key[0], *key[1], r.epoch)

    def _wall_expiry(self, expires: float) -> float | None:
        """Monotonic time as wall clock time, which is still valid after a restart."""
        return None if expires == math.inf else self._clock.wall() + expires - self._clock.monotonic()

    # --- restart

    async def load(self) -> None:
        """Every lease gets its full TTL again, because no worker could renew it while the hub was down. A worker whose lease
        expired meanwhile becomes a suspect: it may still be alive and run tasks. A failing one gets calls again.
        """
        secret, floor, leases, changes = await self._writer.submit(_read)
        self._hub_secret, self._floor = secret, floor
        for revision, kind, workspace, role, instance, epoch, health, at, reason in changes:
            worker = WorkerId(role, instance)
            self._ended[workspace, worker] = epoch
            state = Health(health) if health is not None else None
            self._publish(RegistryChange(revision, ChangeKind(kind), workspace, worker, epoch, state, at, reason))
        wall = self._clock.wall()
        marked = [change for row in leases if (change := self._load_lease(row, wall))]
        if marked:
            await self._store(marked)

    def _load_lease(self, row: tuple[Any, ...], wall: float) -> LeaseChange | None:
        workspace, role, instance, owner, epoch, boot, offer, ttl, health, reason, registered_at, *beat_columns = row
        capacity, in_flight, last_seen, expires_at, token = beat_columns
        key, lasts = (workspace, WorkerId(role, instance)), timedelta(seconds=ttl)
        record = LeaseRecord(_offer(offer, capacity), owner, epoch, boot, lasts, Health(health), reason, registered_at)
        registration = self._renew_or_create(key, record, lasts)
        registration.other_in_flight, registration.last_seen = in_flight, last_seen
        self._set_token(key, registration, token)
        if record.health is Health.FAILING:  # nothing is known of its calls any more
            return self.decide_mark(workspace, key[1], epoch, Health.READY, "")
        if expires_at is None or expires_at > wall:
            return None
        return self.decide_mark(workspace, key[1], epoch, Health.SUSPECT, "its lease expired while the hub was down")


def _write_change(
    db: sqlite3.Connection, change: LeaseChange, rows: _LeaseRows | None, feed_rows: list[tuple[Any, ...]]
) -> list[int]:
    workspace, worker = change.key
    name = (workspace, *worker)
    revisions: list[int] = []
    place = 0
    for row in feed_rows:
        revisions.append(db.execute(_NEXT_REVISION, (workspace,)).fetchone()[0])
        place = db.execute(_CHANGE, (revisions[-1], *row)).lastrowid or 0
        if place % TRIM_EVERY == 0 and place > KEPT:
            db.execute(_RAISE, (place - KEPT,))
            db.execute(_TRIM, (place - KEPT,))
            db.execute(_TRIM_ENDED, (place - KEPT,))
    if change.ends_a_lease:
        db.execute(_KEEP_ENDED, (change.withdrawn, place, *name))
    if rows is None:
        db.execute(_END, name)
        db.execute(_END_BEAT, name)
    else:
        lease, beat = rows
        db.execute(_PUT, lease)
        db.execute(_PUT_BEAT, beat)
    return revisions


def _change_row(change: LeaseChange, pending: PendingChange) -> tuple[Any, ...]:
    workspace, worker = change.key
    return (pending.kind, workspace, *worker, pending.epoch, pending.health, change.at, change.reason_of(pending))


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
