"""The lease table: which workers are live, and the changes for the feed.

An operation is decided first (`decide_…` returns a `LeaseChange` and changes nothing), then stored by the engine, then
applied. Routing reads cached lists. They are rebuilt only when they have changed or when their earliest lease may have
expired: an expired lease is never returned, swept or not.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from hub.ports.clock import Clock
from hub.storage.common.feed import Feed, FeedReader
from rolecall.errors import InstanceConflict, LeaseSuperseded, LeaseUnknown
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.worker import Beat, ChangeKind, Health, LeaseProof, Offer, Registration, RegistryChange

Key = tuple[str, WorkerId]

_KIND_OF = {
    Health.READY: ChangeKind.CHANGED,
    Health.SUSPECT: ChangeKind.SUSPECT,
    Health.FAILING: ChangeKind.FAILING,
    Health.DRAINING: ChangeKind.DRAINING,
}
_ENDED = frozenset({ChangeKind.EXPIRED, ChangeKind.WITHDRAWN})


class LeaseRecord(NamedTuple):
    """The part of a lease that beats do not change."""

    offer: Offer
    owner: str
    epoch: int
    boot: str
    ttl: timedelta
    health: Health
    reason: str
    registered_at: float


class PendingChange(NamedTuple):
    """A change for the feed that has no revision yet."""

    kind: ChangeKind
    epoch: int
    health: Health | None


class LeaseChange(NamedTuple):
    """The effect of one operation on one name. `record` None: the lease ends. `lasts` None: neither its expiry nor its token
    changes.
    """

    key: Key
    record: LeaseRecord | None
    pending: tuple[PendingChange, ...]
    at: float
    lasts: timedelta | None = None
    token: str = ""

    @property
    def ends_a_lease(self) -> bool:
        """An older lease of that name ends, if there is one."""
        return self.record is None or self.pending[-1:] == (
            PendingChange(ChangeKind.ENROLLED, self.record.epoch, Health.READY),
        )

    @property
    def withdrawn(self) -> bool:
        return self.record is None and self.pending[-1].kind is ChangeKind.WITHDRAWN

    def with_revision(self, pending: PendingChange, revision: int) -> RegistryChange:
        workspace, worker = self.key
        health, reason = pending.health, self.reason_of(pending)
        return RegistryChange(revision, pending.kind, workspace, worker, pending.epoch, health, self.at, reason)

    def reason_of(self, pending: PendingChange) -> str:
        """Of the health, if the change sets one."""
        return self.record.reason if self.record is not None and pending.health is not None else ""


@dataclass(slots=True)
class LeaseEntry:
    """`expires` is monotonic time."""

    registration: Registration
    expires: float


class _RoleLeases:
    """A role's leases, and the cached list of the live ones."""

    __slots__ = ("earliest", "leases", "live", "next_end")

    def __init__(self) -> None:
        self.leases: dict[WorkerId, LeaseEntry] = {}
        self.live: tuple[Registration, ...] | None = None
        self.earliest = math.inf
        self.next_end = math.inf
        """No lease in the table expires before this, also not one that has expired and is not swept yet."""

    def live_at(self, now: float) -> tuple[Registration, ...]:
        if self.live is None or now >= self.earliest:
            alive = [lease for lease in self.leases.values() if lease.expires > now]
            self.live = tuple(lease.registration for lease in alive)
            self.earliest = min((lease.expires for lease in alive), default=math.inf)
        return self.live

    def expired_at(self, now: float) -> list[LeaseEntry]:
        """Does not scan the leases while none can have expired."""
        if now < self.next_end:
            return []
        self.next_end = min((lease.expires for lease in self.leases.values()), default=math.inf)
        return [lease for lease in self.leases.values() if lease.expires <= now]


class _WorkspaceLeases:
    __slots__ = ("earliest", "names", "roles")

    def __init__(self) -> None:
        self.roles: dict[str, _RoleLeases] = {}
        self.names: tuple[str, ...] | None = None
        self.earliest = math.inf

    def live_at(self, now: float) -> tuple[str, ...]:
        if self.names is None or now >= self.earliest:
            self.names = tuple(sorted(name for name, role in self.roles.items() if role.live_at(now)))
            self.earliest = min((role.earliest for role in self.roles.values()), default=math.inf)
        return self.names


class LeaseTable:
    """The in-memory part of a registry; for the memory engine this is all of it."""

    def __init__(self, clock: Clock, hub_secret: bytes) -> None:
        self._clock = clock
        self._hub_secret = hub_secret
        self._leases: dict[Key, LeaseEntry] = {}
        self._owned: Counter[Caller] = Counter()
        self._by_token: dict[str, dict[Key, None]] = {}
        # Names whose first lease is being stored. They count towards the limits, or parallel enrolments could exceed them.
        self._expected: dict[Key, Caller] = {}
        self._workspaces: dict[str, _WorkspaceLeases] = {}
        self._feed = Feed()
        # Epochs of names without a lease. When the feed drops a name, its epoch raises the floor from which new names count:
        # so no epoch repeats, and names that never return use no memory.
        self._ended: dict[Key, int] = {}
        self._floor = 0
        self._last: dict[tuple[str, str], RegistryChange] = {}

    # --- reads

    def live(self, workspace: str, role: str | None = None) -> Sequence[Registration]:
        in_workspace = self._workspaces.get(workspace)
        if in_workspace is None:
            return ()
        now = self._clock.monotonic()
        if role is None:
            return [
                registration for name in in_workspace.live_at(now) for registration in in_workspace.roles[name].live_at(now)
            ]
        found = in_workspace.roles.get(role)
        return found.live_at(now) if found is not None else ()

    def everyone(self) -> Iterator[Sequence[Registration]]:
        now = self._clock.monotonic()
        for in_workspace in list(self._workspaces.values()):
            for role in list(in_workspace.roles.values()):
                live = role.live_at(now)
                if live:
                    yield live

    def revision(self) -> int:
        return self._feed.count

    def __len__(self) -> int:
        return len(self._leases) + len(self._expected)

    def count_of(self, owner: Caller) -> int:
        return self._owned[owner]

    def tokens(self) -> Collection[str]:
        return self._by_token.keys()

    def expire(self, token: str) -> None:
        now = self._clock.monotonic()
        for workspace, worker in self._by_token.get(token, ()):
            lease = self._leases[workspace, worker]
            if lease.expires > now:
                self._extend(worker.role, lease, now)

    def get(self, workspace: str, worker: WorkerId) -> Registration | None:
        lease = self._leases.get((workspace, worker))
        return lease.registration if lease is not None and lease.expires > self._clock.monotonic() else None

    def roles(self, workspace: str) -> Sequence[str]:
        in_workspace = self._workspaces.get(workspace)
        return in_workspace.live_at(self._clock.monotonic()) if in_workspace is not None else ()

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
        self, workspace: str, offer: Offer, *, owner: str, token: str = "", boot: str, ttl: timedelta, supersede: bool
    ) -> LeaseChange:
        key = (workspace, offer.worker)
        lease = self._leases.get(key)
        wall = self._clock.wall()
        pending: list[PendingChange] = []
        if lease is not None and lease.expires <= self._clock.monotonic():
            pending.append(PendingChange(ChangeKind.EXPIRED, lease.registration.epoch, None))
            lease = None
        old = lease.registration if lease is not None else None
        if old is not None and old.owner != owner:
            raise InstanceConflict(str(offer.worker), old.offer.url)
        # Without a boot id only the URL distinguishes processes.
        if old is not None and old.boot == boot and (boot or old.offer.url == offer.url):
            stays = old.health is Health.FAILING or (old.health is Health.DRAINING and not old.drains_itself)
            health, reason = (old.health, old.reason) if stays else (Health.READY, "")
            if offer.card_by_url and old.offer.card_by_url and offer.url == old.offer.url:
                offer = offer.with_card_of(old.offer)
            if old.offer != offer or old.health is not health:
                pending.append(PendingChange(ChangeKind.CHANGED, old.epoch, health))
            record = LeaseRecord(offer, owner, old.epoch, boot, ttl, health, reason, old.registered_at)
        else:
            if old is not None and old.offer.url != offer.url and not supersede:
                raise InstanceConflict(str(offer.worker), old.offer.url)
            record = LeaseRecord(offer, owner, self._last_epoch(key) + 1, boot, ttl, Health.READY, "", wall)
            pending.append(PendingChange(ChangeKind.ENROLLED, record.epoch, Health.READY))
        return LeaseChange(key, record, tuple(pending), wall, lasts=ttl, token=token)

    def decide_withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> LeaseChange:
        lease = self._check_proof(workspace, worker, proof)
        return self._ending(lease, ChangeKind.WITHDRAWN)

    def decide_mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> LeaseChange | None:
        """None: nothing changes."""
        registration = self.get(workspace, worker)
        if registration is None or registration.epoch != epoch or registration.health in (health, Health.DRAINING):
            return None
        if registration.health is Health.FAILING and health is Health.SUSPECT:
            return None
        return self._health_change(registration, health, reason)

    def decide_undrain(self, workspace: str, worker: WorkerId, epoch: int) -> LeaseChange | None:
        """None: nothing changes."""
        registration = self.get(workspace, worker)
        if registration is None or registration.epoch != epoch or registration.health is not Health.DRAINING:
            return None
        return None if registration.drains_itself else self._health_change(registration, Health.READY, "")

    def _health_change(self, registration: Registration, health: Health, reason: str) -> LeaseChange:
        record = record_of(registration)._replace(health=health, reason=reason)
        pending = PendingChange(_KIND_OF[health], registration.epoch, health)
        return LeaseChange((registration.workspace, registration.worker), record, (pending,), self._clock.wall())

    def decide_offer(
        self, workspace: str, worker: WorkerId, epoch: int, change: Callable[[Offer], Offer]
    ) -> LeaseChange | None:
        """None: nothing changes."""
        registration = self.get(workspace, worker)
        if registration is None or registration.epoch != epoch:
            return None
        offer = change(registration.offer)
        if offer == registration.offer:
            return None
        pending = PendingChange(ChangeKind.CHANGED, epoch, registration.health)
        return LeaseChange((workspace, worker), record_of(registration)._replace(offer=offer), (pending,), self._clock.wall())

    def decide_all_expired(self) -> list[LeaseChange]:
        now = self._clock.monotonic()
        roles = [role for in_workspace in self._workspaces.values() for role in in_workspace.roles.values()]
        return [self._ending(lease, ChangeKind.EXPIRED) for role in roles for lease in role.expired_at(now)]

    def decide_expired(self, key: Key) -> LeaseChange | None:
        """None: there is no lease, or it has not ended."""
        lease = self._leases.get(key)
        if lease is None or lease.expires > self._clock.monotonic():
            return None
        return self._ending(lease, ChangeKind.EXPIRED)

    def renew(self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, token: str | None) -> Registration:
        """A beat takes effect at once, except for its health: see `health_after`. A change of health must be stored first."""
        lease = self._check_proof(workspace, worker, proof)
        registration = lease.registration
        self._extend(worker.role, lease, self._expiry_after(registration.ttl))
        if token is not None and token != registration.token:
            self._set_token((workspace, worker), registration, token)
        registration.last_seen = self._clock.wall()
        if beat.was_away or registration.health is Health.SUSPECT:
            registration.was_away = True
        if beat.in_flight is not None:
            registration.report(beat.in_flight)
        if beat.capacity is not None and beat.capacity != registration.offer.capacity:
            registration.offer = replace(registration.offer, capacity=beat.capacity)
        return registration

    def hold(self, workspace: str, worker: WorkerId, epoch: int, lasts: timedelta) -> None:
        registration = self.get(workspace, worker)
        if registration is not None and registration.epoch == epoch:
            lease = self._leases[workspace, worker]
            lease.expires = max(lease.expires, self._expiry_after(lasts))

    # --- applying

    def apply(self, change: LeaseChange, revisions: Sequence[int]) -> Registration | None:
        """Apply a stored change. Returns the registration that it created, changed or ended."""
        if change.record is None:
            registration: Registration | None = self._remove(change.key)
        else:
            registration = self._renew_or_create(change.key, change.record, change.lasts)
            if change.lasts is not None:
                self._set_token(change.key, registration, change.token)
        for pending, revision in zip(change.pending, revisions, strict=True):
            self._publish(change.with_revision(pending, revision))
        return registration

    def _renew_or_create(self, key: Key, record: LeaseRecord, lasts: timedelta | None) -> Registration:
        workspace, worker = key
        lease = self._leases.get(key)
        if lease is None or lease.registration.epoch != record.epoch:
            secret = self._secret(key, record.epoch)
            new = Registration(workspace, record.offer, record.epoch, record.boot, secret, record.ttl, record.owner)
            lease = LeaseEntry(new, math.inf)
            self._put(key, lease)
        registration = lease.registration
        registration.offer, registration.ttl = record.offer, record.ttl
        registration.health, registration.reason = record.health, record.reason
        registration.registered_at = record.registered_at
        if lasts is not None:
            registration.last_seen = self._clock.wall()
            self._extend(worker.role, lease, self._expiry_after(lasts))
        return registration

    def _put(self, key: Key, lease: LeaseEntry) -> None:
        workspace, worker = key
        self._no_longer_expected(key)
        old = self._leases.get(key)
        if old is not None:
            self._release_owner(old)
            self._forget_token(key, old.registration.token)
        self._leases[key] = lease
        self._owned[_owner(lease)] += 1
        self._ended.pop(key, None)
        in_workspace = self._workspaces.setdefault(workspace, _WorkspaceLeases())
        role = in_workspace.roles.setdefault(worker.role, _RoleLeases())
        role.leases[worker] = lease
        role.live = in_workspace.names = None

    def _extend(self, role: str, lease: LeaseEntry, expires: float) -> None:
        """If the lease now ends sooner, the cached lists must be checked sooner."""
        lease.expires = expires
        in_workspace = self._workspaces[lease.registration.workspace]
        in_role = in_workspace.roles[role]
        if expires < in_role.earliest:
            in_role.earliest, in_role.live = expires, None
        in_role.next_end = min(in_role.next_end, expires)
        in_workspace.earliest = min(in_workspace.earliest, expires)

    def _remove(self, key: Key) -> Registration | None:
        workspace, worker = key
        lease = self._leases.pop(key, None)
        if lease is None:
            return None
        self._release_owner(lease)
        self._forget_token(key, lease.registration.token)
        self._ended[key] = lease.registration.epoch
        in_workspace = self._workspaces[workspace]
        role = in_workspace.roles[worker.role]
        del role.leases[worker]
        role.live = in_workspace.names = None
        if not role.leases:
            del in_workspace.roles[worker.role]
        return lease.registration

    def _expect(self, key: Key, owner: Caller) -> bool:
        """Count a first lease while it is stored. False: the name has a lease, or is counted already."""
        if key in self._leases or key in self._expected:
            return False
        self._expected[key] = owner
        self._owned[owner] += 1
        return True

    def _no_longer_expected(self, key: Key) -> None:
        """The first lease was stored, or failed."""
        owner = self._expected.pop(key, None)
        if owner is not None:
            self._count_one_less(owner)

    def _release_owner(self, lease: LeaseEntry) -> None:
        self._count_one_less(_owner(lease))

    def _set_token(self, key: Key, registration: Registration, token: str) -> None:
        self._forget_token(key, registration.token)
        registration.token = token
        if token:
            self._by_token.setdefault(token, {})[key] = None

    def _forget_token(self, key: Key, token: str) -> None:
        """The registration keeps it: its tasks may still run."""
        held = self._by_token.get(token)
        if held is not None:
            held.pop(key, None)
            if not held:
                del self._by_token[token]

    def _count_one_less(self, owner: Caller) -> None:
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

    def _check_proof(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> LeaseEntry:
        lease = self._leases.get((workspace, worker))
        if lease is None or lease.expires <= self._clock.monotonic():
            raise LeaseUnknown
        registration = lease.registration
        if proof.epoch is not None and proof.epoch != registration.epoch:
            raise LeaseSuperseded
        if proof.secret is not None and not hmac.compare_digest(proof.secret.encode(), registration.secret.encode()):
            raise LeaseSuperseded
        return lease

    def _ending(self, lease: LeaseEntry, kind: ChangeKind) -> LeaseChange:
        registration = lease.registration
        pending = PendingChange(kind, registration.epoch, None)
        return LeaseChange((registration.workspace, registration.worker), None, (pending,), self._clock.wall())

    def _last_epoch(self, key: Key) -> int:
        lease = self._leases.get(key)
        return lease.registration.epoch if lease is not None else self._ended.get(key, self._floor)

    def _expiry_after(self, ttl: timedelta) -> float:
        return self._clock.monotonic() + ttl.total_seconds() if ttl else math.inf

    def _secret(self, key: Key, epoch: int) -> str:
        """Stable for a lease, also across restarts."""
        text = "\0".join((key[0], key[1].role, key[1].instance, str(epoch)))
        return hmac.new(self._hub_secret, text.encode(), hashlib.sha256).hexdigest()


def _owner(lease: LeaseEntry) -> Caller:
    return Caller(lease.registration.workspace, lease.registration.owner)


def record_of(registration: Registration) -> LeaseRecord:
    r = registration
    return LeaseRecord(r.offer, r.owner, r.epoch, r.boot, r.ttl, r.health, r.reason, r.registered_at)


def health_after(registration: Registration, beat: Beat) -> Health:
    """A beat clears SUSPECT. It does not end DRAINING, and FAILING depends on calls alone."""
    if beat.draining or registration.health is Health.DRAINING:
        return Health.DRAINING
    return Health.FAILING if registration.health is Health.FAILING else Health.READY
