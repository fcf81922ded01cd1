"""Holds the leases of agents that do not enrol: those of the hub's own configuration.

Each is asked for its card three times per heartbeat, as `rolecall announce` asks a server, and its lease is renewed while it
answers. One that refuses two connections in a row is withdrawn at once: nothing listens there any more. One that does not
answer keeps its lease until that runs out, because it may only be slow, or the network may be. Their leases are in the same
registry as all others, under a holder of their own, so that nobody else takes them over, and they take over nobody's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from hub.core.registry.card_reader import CardReader
from hub.core.registry.directory import Directory
from hub.core.supervisor import Supervisor
from hub.ports.card_source import Address, CardAnswer, CardSource, Reach
from hub.ports.clock import Clock
from hub.ports.state.registry import Registry
from rolecall.errors import HubError, InstanceConflict, LeaseError, StoreUnavailable
from rolecall.model.ids import WorkerId
from rolecall.model.principal import Kind, Principal
from rolecall.model.worker import Beat, ConfiguredAgent, Health, LeaseProof, Offer, Registration

log = logging.getLogger(__name__)

CONFIGURATION = Principal("[[agents]]", Kind.ADMIN)
"""The holder of these leases, in the workspace `default`."""
_LOOK_EVERY = 1.0
_PROBES_PER_HEARTBEAT = 3
_REFUSED_TWICE_WITHIN = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0
"""Between two probes of an agent without a lease."""
_RESOLVE_EVERY = 15.0
_MOST_ADDRESSES = 100


@dataclass(slots=True)
class _Instance:
    """One instance. `offer`: what the configuration says of it. `problem`: why it is not held, as it was logged last."""

    offer: Offer
    asked_at: float = 0.0
    due: float = 0.0
    pause: float = _FIRST_PAUSE
    busy: bool = False
    epoch: int | None = None
    """Of the lease that has this offer; None: none has."""
    problem: str | None = None


@dataclass(slots=True)
class _Agent:
    """One agent. `addresses` None: not known yet."""

    addresses: Sequence[Address] | None = None
    due: float = 0.0
    busy: bool = False
    problem: str = ""


class ConfiguredAgents:
    def __init__(
        self,
        registry: Registry,
        directory: Directory,
        cards: CardReader,
        source: CardSource,
        clock: Clock,
        supervisor: Supervisor,
        *,
        heartbeat: timedelta,
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._cards = cards
        self._source = source
        self._clock = clock
        self._supervisor = supervisor
        self._probe_every = heartbeat.total_seconds() / _PROBES_PER_HEARTBEAT
        self._agents: dict[ConfiguredAgent, _Agent] = {}
        self._held: dict[WorkerId, _Instance] = {}
        self._ending: set[WorkerId] = set()
        self._wake = asyncio.Event()

    def replace(self, agents: Sequence[ConfiguredAgent]) -> None:
        """From now on these. The leases of those that are gone end."""
        found = {agent.url: known.addresses for agent, known in self._agents.items()}
        self._agents = {agent: self._agents.get(agent) or _Agent(found.get(agent.url)) for agent in agents}
        self._rebuild()
        self._wake.set()

    async def watch(self) -> None:
        """Run forever. Every look compares all that there is."""
        while True:
            self._look()
            try:
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._wake.wait()
            except TimeoutError:
                pass  # it is time to look again
            self._wake.clear()

    # --- what is wanted

    def _rebuild(self) -> None:
        """The instances of the agents whose addresses are known."""
        wanted = {offer.worker: offer for agent, known in self._agents.items() for offer in _offers(agent, known)}
        before, self._held = self._held, {}
        for worker, offer in wanted.items():
            held = before.get(worker)
            self._held[worker] = held if held is not None and held.offer == offer else _Instance(offer)

    def _look(self) -> None:
        now = self._clock.monotonic()
        for agent, known in self._agents.items():
            if agent.instance is None and not known.busy and now >= known.due:
                known.due = now + _RESOLVE_EVERY
                self._start(f"addresses of {agent.role}", self._resolve(agent, known), known)
        for held in self._held.values():
            if not held.busy and (now >= held.due or self._is_suspect(held, now)):
                self._start(f"probe of {held.offer.worker}", self._probe(held), held)
        unknown = {agent.role for agent, known in self._agents.items() if agent.instance is None and known.addresses is None}
        with_lease = sum(self._lease_of(worker) is not None for worker in self._held)
        if self._registry.count_of(CONFIGURATION.caller) == with_lease:
            return  # the usual case: the registry may be large
        for registration in self._registry.live(CONFIGURATION.workspace):
            worker = registration.worker
            wanted = worker in self._held or worker.role in unknown or worker in self._ending
            if registration.owner == CONFIGURATION.name and not wanted:
                self._ending.add(worker)
                job = self._withdraw(registration, "it is no longer configured")
                self._supervisor.run_once(f"withdrawal of {worker}", job, then=partial(self._ending.discard, worker))

    def _start(self, name: str, job: Coroutine[Any, Any, None], of: _Instance | _Agent) -> None:
        def done() -> None:
            of.busy = False

        of.busy = True
        self._supervisor.run_once(name, job, then=done)

    def _is_suspect(self, held: _Instance, now: float) -> bool:
        """Calls to it failed since it was asked."""
        mine = self._lease_of(held.offer.worker)
        return mine is not None and mine.health is Health.SUSPECT and now - held.asked_at >= _LOOK_EVERY

    def _lease_of(self, worker: WorkerId) -> Registration | None:
        registration = self._registry.get(CONFIGURATION.workspace, worker)
        return registration if registration is not None and registration.owner == CONFIGURATION.name else None

    async def _resolve(self, agent: ConfiguredAgent, known: _Agent) -> None:
        """Addresses that its name no longer has are no longer wanted; while it does not resolve, the ones before stay."""
        found = await self._source.addresses(CONFIGURATION.workspace, agent.url)
        problem = ""
        if found is None:
            problem = "its name does not resolve, or to an address that is not allowed"
        elif len(found) > _MOST_ADDRESSES:
            problem = f"its name has {len(found)} addresses, and the first {_MOST_ADDRESSES} count"
        if problem != known.problem:
            known.problem = problem
            _log_problem(f"{agent.role} at {agent.url}", problem)
        if found is not None:
            known.addresses = found[:_MOST_ADDRESSES]
            self._rebuild()
            self._wake.set()

    # --- one instance

    async def _probe(self, held: _Instance) -> None:
        worker, now = held.offer.worker, self._clock.monotonic()
        held.asked_at, held.due = now, now + self._probe_every
        mine = self._lease_of(worker)
        asked = held.offer.with_card_of(mine.offer) if mine is not None and mine.offer.url == held.offer.url else held.offer
        state = mine.card_state if mine is not None else None
        answer = await self._cards.ask(CONFIGURATION.workspace, asked, state)
        if answer.reach is Reach.REFUSED:
            await asyncio.sleep(_REFUSED_TWICE_WITHIN)
            answer = await self._cards.ask(CONFIGURATION.workspace, asked, state)
        if self._held.get(worker) is not held:
            return  # it is configured otherwise by now
        try:
            await self._decide(held, asked, answer)
        except InstanceConflict:
            self._fail(held, "another holder has its name: choose another instance, or withdraw that worker")
        except HubError as error:
            self._fail(held, error.message)

    async def _decide(self, held: _Instance, asked: Offer, answer: CardAnswer) -> None:
        mine = self._lease_of(held.offer.worker)
        match answer.reach:
            case Reach.ANSWERED:
                await self._hold(held, mine, asked, answer)
                held.pause = _FIRST_PAUSE
                self._report(held, "")
            case Reach.REFUSED:
                if mine is not None:
                    await self._withdraw(mine, answer.note)
                self._fail(held, answer.note)
            case Reach.SILENT:
                self._fail(held, answer.note)
            case Reach.NOT_ASKED if mine is not None:  # which says nothing of the agent
                await self._beat(mine, Beat())

    async def _hold(self, held: _Instance, mine: Registration | None, asked: Offer, answer: CardAnswer) -> None:
        """Take its lease, or renew it."""
        offer = asked.with_card_of(answer.offer) if answer.offer is not None else asked
        if mine is None or (mine.offer.url, mine.offer.address) != (offer.url, offer.address):
            mine = (await self._directory.enrol(CONFIGURATION, offer, boot="")).registration
        else:
            if mine.epoch != held.epoch:  # the lease is of an earlier configuration, or of an earlier hub
                await self._registry.change_offer(mine.workspace, mine.worker, mine.epoch, held.offer.with_card_of)
            await self._beat(mine, Beat(was_away=bool(held.problem)))
        held.epoch = mine.epoch
        await self._cards.keep(mine, asked, answer)

    async def _beat(self, mine: Registration, beat: Beat) -> None:
        await self._directory.beat(CONFIGURATION, mine.worker, LeaseProof(mine.epoch, mine.secret), beat)

    async def _withdraw(self, mine: Registration, why: str) -> None:
        try:
            await self._directory.withdraw(CONFIGURATION, mine.worker, LeaseProof(mine.epoch, mine.secret))
        except (LeaseError, StoreUnavailable):
            return  # it has just ended, or ends with its ttl
        log.info("agent withdrawn", extra={"event": "agent_withdrawn", "worker": str(mine.worker), "why": why})

    def _fail(self, held: _Instance, why: str) -> None:
        """Without a lease it is asked more and more rarely."""
        if self._lease_of(held.offer.worker) is None:
            held.due = self._clock.monotonic() + held.pause
            held.pause = min(2 * held.pause, _LONGEST_PAUSE)
        self._report(held, why)

    def _report(self, held: _Instance, problem: str) -> None:
        """Log it when it changes."""
        if problem != held.problem:
            held.problem = problem
            _log_problem(str(held.offer.worker), problem)


def _offers(agent: ConfiguredAgent, known: _Agent) -> Iterator[Offer]:
    """An offer for each of its instances."""
    labels = dict(agent.labels)
    addresses = [Address("", agent.instance)] if agent.instance is not None else known.addresses or ()
    for text, label in addresses:
        worker = WorkerId(agent.role, label)
        yield Offer(worker, agent.url, labels=labels, credential=agent.credential, card_by_url=True, address=text)


def _log_problem(agent: str, problem: str) -> None:
    if problem:
        log.warning("agent not held", extra={"event": "agent_not_held", "agent": agent, "why": problem})
    else:
        log.info("agent held", extra={"event": "agent_held", "agent": agent})
