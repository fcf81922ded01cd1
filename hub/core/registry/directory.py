"""Enrolment, heartbeats and discovery: the operations of workers and callers on the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import NamedTuple

from hub.core.observe import Observer
from hub.core.open_feeds import OpenFeeds
from hub.core.registry.card_reader import CardReader
from hub.ports.forwarder import Forwarder
from hub.ports.state.registry import Registry, RegistryFeed
from rolecall.errors import (
    DrainsItself,
    InstanceConflict,
    LeaseSuperseded,
    LeaseUnknown,
    Overloaded,
    RoleForbidden,
    TooManyRegistrations,
)
from rolecall.model.command import AgentQuery
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.principal import LOCAL, Kind, Network, Principal
from rolecall.model.worker import Beat, Health, LeaseProof, Offer, Registration

_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(hours=1)
_JITTER = 0.1


class LeaseTerms(NamedTuple):
    """The terms of the leases that the hub grants. A zero ttl: leases never expire."""

    ttl: timedelta
    heartbeat: timedelta


class GrantedLease(NamedTuple):
    registration: Registration
    heartbeat: timedelta
    is_new: bool


class Directory:
    def __init__(
        self,
        registry: Registry,
        forwarder: Forwarder,
        observer: Observer,
        terms: LeaseTerms,
        *,
        cards: CardReader,
        check_url: Callable[[str, Sequence[Network]], None],
        on_beat: Callable[[str, WorkerId], None],
        limit: int,
        per_holder_limit: int,
        rng: Random | None = None,
    ) -> None:
        self._registry = registry
        self._forwarder = forwarder
        self._observer = observer
        self._terms = terms
        self._cards = cards
        self._check_url = check_url
        self._on_beat = on_beat
        self._limit = limit
        self._per_holder_limit = per_holder_limit
        self._rng = rng or Random()
        self._feeds = OpenFeeds()

    async def enrol(self, holder: Principal, offer: Offer, *, boot: str, ttl: timedelta | None = None) -> GrantedLease:
        """Takes the name over if another process of the same holder has it; without tokens, only if nothing accepts connections
        at that process's address. RoleForbidden, OfferInvalid, InstanceConflict, Overloaded, TooManyRegistrations.
        """
        if not holder.may_serve(offer.worker.role):
            raise RoleForbidden(offer.worker.role)
        self._check_url(offer.url, holder.networks)
        if holder.networks:
            offer = replace(offer, networks=tuple(str(network) for network in holder.networks))
        granted_ttl, workspace = self._ttl(ttl), holder.workspace
        before = self._registry.get(workspace, offer.worker)
        named = partial(self._registry.enrol, workspace, offer, owner=holder.name, token=holder.token)
        enrol = partial(named, boot=boot, ttl=granted_ttl)
        if before is None:
            self._check_limits(holder)
            return self._granted(await enrol(), granted_ttl, is_new=True)
        epoch = before.epoch
        try:
            registration = await enrol(supersede=holder != LOCAL)
        except InstanceConflict:
            if holder != LOCAL or await self._forwarder.probe(workspace, before.offer):
                raise
            registration = await enrol(supersede=True)
        return self._granted(registration, granted_ttl, is_new=registration.epoch != epoch)

    def _granted(self, registration: Registration, ttl: timedelta, *, is_new: bool) -> GrantedLease:
        self._cards.look_at(registration)
        return GrantedLease(registration, self._heartbeat(ttl), is_new)

    def _check_limits(self, holder: Principal) -> None:
        if len(self._registry) >= self._limit:
            raise Overloaded("registrations", self._limit, "max_agents")
        if holder != LOCAL and self._registry.count_of(holder.caller) >= self._per_holder_limit:
            raise TooManyRegistrations(self._per_holder_limit)

    async def beat(self, holder: Principal, worker: WorkerId, proof: LeaseProof, beat: Beat) -> GrantedLease:
        known = self._check_holder(holder, worker, proof)
        # An admin's beat does not tie another holder's lease to the admin's token.
        token = holder.token if known is not None and known.owner == holder.name else None
        registration = await self._registry.beat(holder.workspace, worker, proof, beat, token=token)
        self._on_beat(holder.workspace, worker)
        return GrantedLease(registration, self._heartbeat(registration.ttl), False)

    async def withdraw(self, holder: Principal, worker: WorkerId, proof: LeaseProof) -> None:
        self._check_holder(holder, worker, proof)
        await self._registry.withdraw(holder.workspace, worker, proof)

    def _check_holder(self, holder: Principal, worker: WorkerId, proof: LeaseProof) -> Registration | None:
        """With tokens, only the holder that enrolled a worker may use its lease, and must show the secret of the lease; to
        others it is LeaseUnknown. An admin may use any lease of the workspace, without the secret.
        """
        if holder == LOCAL:
            return None
        registration = self._registry.get(holder.workspace, worker)
        if registration is None or (registration.owner != holder.name and holder.kind is not Kind.ADMIN):
            raise LeaseUnknown
        if proof.secret is None and holder.kind is not Kind.ADMIN:
            raise LeaseSuperseded
        return registration

    async def drain(self, caller: Caller, worker: WorkerId, reason: str) -> Registration:
        registration = self.get(caller, worker)
        await self._registry.mark(caller.workspace, worker, registration.epoch, Health.DRAINING, reason)
        return registration

    async def undrain(self, caller: Caller, worker: WorkerId) -> Registration:
        """No effect if it does not drain. LeaseUnknown; DrainsItself: it would refuse calls."""
        registration = self.get(caller, worker)
        if registration.drains_itself:
            raise DrainsItself(str(worker))
        await self._registry.undrain(caller.workspace, worker, registration.epoch)
        return registration

    async def probe(self, caller: Caller, worker: WorkerId) -> tuple[Registration, bool]:
        """Whether the hub can connect to that worker's address now. Has its card read again."""
        registration = self.get(caller, worker)
        self._cards.read_again(registration)
        return registration, await self._forwarder.probe(caller.workspace, registration.offer)

    def get(self, caller: Caller, worker: WorkerId) -> Registration:
        registration = self._registry.get(caller.workspace, worker)
        if registration is None:
            raise LeaseUnknown(f"No live agent {worker}.")
        return registration

    def roles(self, caller: Caller) -> Sequence[str]:
        return self._registry.roles(caller.workspace)

    def live(self, caller: Caller, role: str | None = None) -> Sequence[Registration]:
        return self._registry.live(caller.workspace, role)

    def find(self, caller: Caller, query: AgentQuery) -> tuple[Sequence[Registration], str | None]:
        """A page in the order of names, and the cursor of the next page."""
        live = self._registry.live(caller.workspace, query.role)
        found = sorted((r for r in live if _fits(r, query)), key=lambda r: str(r.worker))
        if query.after is not None:
            found = [r for r in found if str(r.worker) > query.after]
        page = found[: query.limit]
        return page, str(page[-1].worker) if len(found) > len(page) else None

    def expires_in(self, registration: Registration) -> timedelta | None:
        return self._registry.expires_in(registration)

    def revision(self) -> int:
        """Rises with every change of a lease or an offer."""
        return self._registry.revision()

    def changes(self, caller: Caller, *, after: int | None, idle: timedelta) -> AbstractContextManager[RegistryFeed]:
        return self._feeds.keep(self._registry.changes(caller.workspace, after=after, idle=idle))

    def end_feeds(self) -> None:
        """The hub shuts down."""
        self._feeds.end()

    async def observe(self) -> None:
        """Run forever: report the changes of all workspaces to the observer."""
        async for batch in self._registry.changes(None, after=None, idle=_LONGEST):
            for change in batch:
                self._observer.registry_changed(change)

    def usual_heartbeat(self, ttl: timedelta) -> timedelta:
        """How often a lease of that length must be renewed, before jitter."""
        usual = self._terms.heartbeat
        return min(usual, ttl / 3) if ttl and ttl != self._terms.ttl else usual

    def _ttl(self, wished: timedelta | None) -> timedelta:
        if wished is None or not self._terms.ttl:
            return self._terms.ttl
        return min(max(wished, _SHORTEST), _LONGEST)

    def _heartbeat(self, ttl: timedelta) -> timedelta:
        """The hub adds jitter, so that a thousand workers that reconnect together do not beat together."""
        return self.usual_heartbeat(ttl) * (1 + _JITTER * (2 * self._rng.random() - 1))


def _fits(registration: Registration, query: AgentQuery) -> bool:
    offer = registration.offer
    if query.state is not None and registration.health.value != query.state:
        return False
    if query.tag is not None and query.tag not in offer.tags:
        return False
    if query.capability is not None and not offer.capability(query.capability):
        return False
    if query.skill is not None and not offer.offers(query.skill):
        return False
    if any(offer.labels.get(name) != value if value else name not in offer.labels for name, value in query.labels.items()):
        return False
    return query.text is None or query.text.casefold() in _words_of(offer)


def _words_of(offer: Offer) -> str:
    skills = " ".join(f"{s.get('name', '')} {s.get('description', '')}" for s in offer.skills)
    return f"{offer.worker} {offer.about} {offer.card.get('name', '')} {skills}".casefold()
