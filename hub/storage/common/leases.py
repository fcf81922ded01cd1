"""The lease table: who is live, by whose clock, and what the feed says of it.

An operation is decided first (`decide_…` returns a `Step` and changes nothing), then stored by the engine, then applied.
What routing asks on every request is answered from lists that are rebuilt only when they have changed or when their
earliest lease may have run out: a lease that has expired is never seen, swept or not.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from hub.ports.clock import Clock
from hub.storage.common.feed import Feed, FeedReader
from rolecall.errors import InstanceConflict, LeaseSuperseded, LeaseUnknown
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.worker import Beat, ChangeKind, Health, LeaseProof, Offer, Registration, RegistryChange

Key = tuple[str, WorkerId]

_KIND_OF = {Health.READY: ChangeKind.CHANGED, Health.SUSPECT: ChangeKind.SUSPECT, Health.DRAINING: ChangeKind.DRAINING}
_ENDED = frozenset({ChangeKind.EXPIRED, ChangeKind.WITHDRAWN})


class LeaseRecord(NamedTuple):
    """What a lease says, apart from what beats change."""

    offer: Offer
    owner: str
    epoch: int
    boot: str
    ttl: timedelta
    health: Health
    reason: str
    registered_at: float


class PendingChange(NamedTuple):
    """A line of the feed that has no revision yet."""

    kind: ChangeKind
    epoch: int
    health: Health | None


class LeaseChange(NamedTuple):
    """What one operation makes of one name. `terms` None: the lease ends. `lasts` None: it runs as long as it did."""

    key: Key
    terms: LeaseRecord | None
    drafts: tuple[PendingChange, ...]
    at: float
    lasts: timedelta | None = None

    def change(self, draft: PendingChange, revision: int) -> RegistryChange:
        workspace, worker = self.key
        return RegistryChange(revision, draft.kind, workspace, worker, draft.epoch, draft.health, self.at)


@dataclass(slots=True)
class HeldLease:
    """`expires` is the monotonic clock's."""

    registration: Registration
    expires: float


class _Role:
    """A role's leases, and the list of the live ones as of the last look."""

    __slots__ = ("earliest", "leases", "live", "next_end")

    def __init__(self) -> None:
        self.leases: dict[WorkerId, HeldLease] = {}
        self.live: tuple[Registration, ...] | None = None
        self.earliest = math.inf
        self.next_end = math.inf
        """No lease that is held ends before this: those that have ended and are not swept yet included."""

    def look(self, now: float) -> tuple[Registration, ...]:
        if self.live is None or now >= self.earliest:
            alive = [lease for lease in self.leases.values() if lease.expires > now]
            self.live = tuple(lease.registration for lease in alive)
            self.earliest = min((lease.expires for lease in alive), default=math.inf)
        return self.live

    def ended(self, now: float) -> list[HeldLease]:
        """Not by looking through them all, as long as nothing can have ended."""
        if now < self.next_end:
            return []
        self.next_end = min((lease.expires for lease in self.leases.values()), default=math.inf)
        return [lease for lease in self.leases.values() if lease.expires <= now]


class _Workspace:
    __slots__ = ("earliest", "names", "roles")

    def __init__(self) -> None:
        self.roles: dict[str, _Role] = {}
        self.names: tuple[str, ...] | None = None
        self.earliest = math.inf

    def look(self, now: float) -> tuple[str, ...]:
        if self.names is None or now >= self.earliest:
            self.names = tuple(sorted(name for name, role in self.roles.items() if role.look(now)))
            self.earliest = min((role.earliest for role in self.roles.values()), default=math.inf)
        return self.names


class LeaseTable:
    """The part of a registry that is memory: all of it for the memory engine."""

    def __init__(self, clock: Clock, hub_secret: bytes) -> None:
        self._clock = clock
        self._hub_secret = hub_secret
        self._leases: dict[Key, HeldLease] = {}
        self._owned: Counter[Caller] = Counter()
        # Names that have none yet, and get one as soon as it is stored: they count, or a flood would overtake the count.
        self._coming: dict[Key, Caller] = {}
        self._workspaces: dict[str, _Workspace] = {}
        self._feed = Feed()
        # Epochs of names that hold no lease. A name that the feed has forgotten gives its epoch to the floor, from
        # which new names count: so no epoch repeats, and names that never come back cost nothing for ever.
        self._ended: dict[Key, int] = {}
        self._floor = 0
        self._last: dict[tuple[str, str], RegistryChange] = {}

    # --- what routing asks

    def live(self, workspace: str, role: str | None = None) -> Sequence[Registration]:
        room = self._workspaces.get(workspace)
        if room is None:
            return ()
        now = self._clock.monotonic()
        if role is None:
            return [registration for name in room.look(now) for registration in room.roles[name].look(now)]
        found = room.roles.get(role)
        return found.look(now) if found is not None else ()

    def everyone(self) -> Iterator[Sequence[Registration]]:
        now = self._clock.monotonic()
        for room in list(self._workspaces.values()):
            for role in list(room.roles.values()):
                live = role.look(now)
                if live:
                    yield live

    def revision(self) -> int:
        return self._feed.revision

    def __len__(self) -> int:
        return len(self._leases) + len(self._coming)

    def held_by(self, owner: Caller) -> int:
        return self._owned[owner]

    def get(self, workspace: str, worker: WorkerId) -> Registration | None:
        lease = self._leases.get((workspace, worker))
        return lease.registration if lease is not None and lease.expires > self._clock.monotonic() else None

    def roles(self, workspace: str) -> Sequence[str]:
        room = self._workspaces.get(workspace)
        return room.look(self._clock.monotonic()) if room is not None else ()

    def expires_in(self, registration: Registration) -> timedelta | None:
        lease = self._leases.get((registration.workspace, registration.worker))
        if lease is None or lease.registration is not registration:
            return timedelta()
        if lease.expires == math.inf:
            return None
        return timedelta(seconds=max(lease.expires - self._clock.monotonic(), 0))

    def last_of(self, workspace: str, role: str) -> RegistryChange | None:
        return self._last.get((workspace, role))

    def changes(self, workspace: str | None, *, after: int | None, idle: timedelta) -> FeedReader:
        return FeedReader(self._feed, workspace, after=after, idle=idle)

    # --- decisions

    def decide_enrol(
        self, workspace: str, offer: Offer, *, owner: str, boot: str, ttl: timedelta, supersede: bool
    ) -> LeaseChange:
        key = (workspace, offer.worker)
        lease = self._leases.get(key)
        wall = self._clock.wall()
        drafts: list[PendingChange] = []
        if lease is not None and lease.expires <= self._clock.monotonic():
            drafts.append(PendingChange(ChangeKind.EXPIRED, lease.registration.epoch, None))
            lease = None
        old = lease.registration if lease is not None else None
        if old is not None and old.owner != owner:
            raise InstanceConflict(str(offer.worker), old.offer.url)
        # Without a boot id nothing but the address tells processes apart.
        if old is not None and old.boot == boot and (boot or old.offer.url == offer.url):
            if old.offer != offer or old.health is not Health.READY:
                drafts.append(PendingChange(ChangeKind.CHANGED, old.epoch, Health.READY))
            terms = LeaseRecord(offer, owner, old.epoch, boot, ttl, Health.READY, "", old.registered_at)
        else:
            if old is not None and old.offer.url != offer.url and not supersede:
                raise InstanceConflict(str(offer.worker), old.offer.url)
            terms = LeaseRecord(offer, owner, self._last_epoch(key) + 1, boot, ttl, Health.READY, "", wall)
            drafts.append(PendingChange(ChangeKind.ENROLLED, terms.epoch, Health.READY))
        return LeaseChange(key, terms, tuple(drafts), wall, lasts=ttl)

    def decide_withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> LeaseChange:
        lease = self._proven(workspace, worker, proof)
        return self._end(lease, ChangeKind.WITHDRAWN)

    def decide_mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> LeaseChange | None:
        """None: nothing changes."""
        registration = self.get(workspace, worker)
        if registration is None or registration.epoch != epoch or registration.health in (health, Health.DRAINING):
            return None
        terms = record_of(registration)._replace(health=health, reason=reason)
        draft = PendingChange(_KIND_OF[health], epoch, health)
        return LeaseChange((workspace, worker), terms, (draft,), self._clock.wall())

    def decide_expiries(self) -> list[LeaseChange]:
        now = self._clock.monotonic()
        roles = [role for room in self._workspaces.values() for role in room.roles.values()]
        return [self._end(lease, ChangeKind.EXPIRED) for role in roles for lease in role.ended(now)]

    def decide_expiry(self, key: Key) -> LeaseChange | None:
        """None: there is no lease, or it has not ended."""
        lease = self._leases.get(key)
        if lease is None or lease.expires > self._clock.monotonic():
            return None
        return self._end(lease, ChangeKind.EXPIRED)

    def renew(self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, ttl: timedelta | None) -> Registration:
        """A beat takes effect at once. What it says of health is for `health_after`: that has to be stored."""
        lease = self._proven(workspace, worker, proof)
        registration = lease.registration
        self._extend(worker.role, lease, self._until(registration.ttl if ttl is None else ttl))
        registration.last_seen = self._clock.wall()
        if beat.in_flight is not None:
            registration.reported_in_flight = beat.in_flight
        if beat.capacity is not None and beat.capacity != registration.offer.capacity:
            registration.offer = replace(registration.offer, capacity=beat.capacity)
        return registration

    def hold(self, workspace: str, worker: WorkerId, epoch: int, lasts: timedelta) -> None:
        registration = self.get(workspace, worker)
        if registration is not None and registration.epoch == epoch:
            lease = self._leases[workspace, worker]
            lease.expires = max(lease.expires, self._until(lasts))

    # --- taking over

    def apply(self, step: LeaseChange, revisions: Sequence[int]) -> Registration | None:
        """Take over what has been stored. Returns the lease, or the one that ended."""
        registration = self._drop(step.key) if step.terms is None else self._take(step.key, step.terms, step.lasts)
        for draft, revision in zip(step.drafts, revisions, strict=True):
            self._publish(step.change(draft, revision))
        return registration

    def _take(self, key: Key, terms: LeaseRecord, lasts: timedelta | None) -> Registration:
        workspace, worker = key
        lease = self._leases.get(key)
        if lease is None or lease.registration.epoch != terms.epoch:
            secret = self._secret(key, terms.epoch)
            new = Registration(workspace, terms.offer, terms.epoch, terms.boot, secret, terms.ttl, terms.owner)
            lease = HeldLease(new, math.inf)
            self._put(key, lease)
        registration = lease.registration
        registration.offer, registration.ttl = terms.offer, terms.ttl
        registration.health, registration.reason = terms.health, terms.reason
        registration.registered_at = terms.registered_at
        if lasts is not None:
            registration.last_seen = self._clock.wall()
            self._extend(worker.role, lease, self._until(lasts))
        return registration

    def _put(self, key: Key, lease: HeldLease) -> None:
        workspace, worker = key
        self._has_come(key)
        self._disown(self._leases.get(key))
        self._leases[key] = lease
        self._owned[_owner(lease)] += 1
        self._ended.pop(key, None)
        room = self._workspaces.setdefault(workspace, _Workspace())
        role = room.roles.setdefault(worker.role, _Role())
        role.leases[worker] = lease
        role.live = room.names = None

    def _extend(self, role: str, lease: HeldLease, expires: float) -> None:
        """A lease that is to end sooner than it did must be looked at sooner."""
        lease.expires = expires
        room = self._workspaces[lease.registration.workspace]
        held = room.roles[role]
        if expires < held.earliest:
            held.earliest, held.live = expires, None
        held.next_end = min(held.next_end, expires)
        room.earliest = min(room.earliest, expires)

    def _drop(self, key: Key) -> Registration | None:
        workspace, worker = key
        lease = self._leases.pop(key, None)
        if lease is None:
            return None
        self._disown(lease)
        self._ended[key] = lease.registration.epoch
        room = self._workspaces[workspace]
        role = room.roles[worker.role]
        del role.leases[worker]
        role.live = room.names = None
        if not role.leases:
            del room.roles[worker.role]
        return lease.registration

    def _expect(self, key: Key, owner: Caller) -> bool:
        """False: it has a lease, or is expected already."""
        if key in self._leases or key in self._coming:
            return False
        self._coming[key] = owner
        self._owned[owner] += 1
        return True

    def _has_come(self, key: Key) -> None:
        """It has a lease, or will have none."""
        owner = self._coming.pop(key, None)
        if owner is not None:
            self._owns_less(owner)

    def _disown(self, lease: HeldLease | None) -> None:
        if lease is not None:
            self._owns_less(_owner(lease))

    def _owns_less(self, owner: Caller) -> None:
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]

    def _publish(self, change: RegistryChange) -> None:
        self._last[change.workspace, change.worker.role] = change
        forgotten = self._feed.publish(change)
        if forgotten is None:
            return
        key, role = (forgotten.workspace, forgotten.worker), (forgotten.workspace, forgotten.worker.role)
        if forgotten.kind in _ENDED and self._ended.get(key) == forgotten.epoch:
            self._floor = max(self._floor, self._ended.pop(key))
        if self._last[role] is forgotten and not self.live(*role):
            del self._last[role]

    # --- rules

    def _proven(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> HeldLease:
        lease = self._leases.get((workspace, worker))
        if lease is None or lease.expires <= self._clock.monotonic():
            raise LeaseUnknown
        registration = lease.registration
        if proof.epoch is not None and proof.epoch != registration.epoch:
            raise LeaseSuperseded
        if proof.secret is not None and not hmac.compare_digest(proof.secret.encode(), registration.secret.encode()):
            raise LeaseSuperseded
        return lease

    def _end(self, lease: HeldLease, kind: ChangeKind) -> LeaseChange:
        registration = lease.registration
        draft = PendingChange(kind, registration.epoch, None)
        return LeaseChange((registration.workspace, registration.worker), None, (draft,), self._clock.wall())

    def _last_epoch(self, key: Key) -> int:
        lease = self._leases.get(key)
        return lease.registration.epoch if lease is not None else self._ended.get(key, self._floor)

    def _until(self, ttl: timedelta) -> float:
        return self._clock.monotonic() + ttl.total_seconds() if ttl else math.inf

    def _secret(self, key: Key, epoch: int) -> str:
        """The same for the same lease, also after a restart."""
        text = "\0".join((key[0], key[1].role, key[1].instance, str(epoch)))
        return hmac.new(self._hub_secret, text.encode(), hashlib.sha256).hexdigest()


def _owner(lease: HeldLease) -> Caller:
    return Caller(lease.registration.workspace, lease.registration.owner)


def record_of(registration: Registration) -> LeaseRecord:
    r = registration
    return LeaseRecord(r.offer, r.owner, r.epoch, r.boot, r.ttl, r.health, r.reason, r.registered_at)


def health_after(registration: Registration, beat: Beat) -> Health:
    """A beat clears suspicion; that a worker drains is taken back by enrolling only."""
    if beat.draining or registration.health is Health.DRAINING:
        return Health.DRAINING
    return Health.READY
