"""Workers: what they report, and what the hub knows of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple

from rolecall.model.a2a import JsonObject
from rolecall.model.card import JSONRPC, Interface, is_durable
from rolecall.model.ids import TaskId, WorkerId


class Health(StrEnum):
    READY = "ready"
    SUSPECT = "suspect"
    FAILING = "failing"
    DRAINING = "draining"


MAX_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker reports when it enrols. `card` is its full A2A card, with unknown members."""

    worker: WorkerId
    url: str
    description: str = ""
    """As it enrolled: see `about`."""
    card: JsonObject = field(default_factory=dict)
    streaming: bool = False
    replays: bool = False
    reads_files: bool = False
    """It reads files of the hub by their urls; others get their bytes."""
    interfaces: tuple[Interface, ...] = ()
    """The worker's interfaces; none: JSON-RPC in 0.3 at `url`."""
    capacity: int | None = None
    credential: str = ""
    """The Authorization header of calls to the worker, sealed. The hub shows it to nobody else."""
    networks: tuple[str, ...] = ()
    """CIDRs from the token that enrolled it, checked at every connect. None: any network that the hub allows."""
    address: str = ""
    """The hub connects there, and takes the URL's host for a name alone. Empty: wherever the name leads."""
    labels: dict[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    idempotent: bool = False
    """A call of it may be made again, although it may have run."""
    card_by_url: bool = False
    """It enrolled with a URL alone, so the hub reads its card."""

    @property
    def about(self) -> str:
        """For people: what it enrolled with, else what its card says."""
        return self.description or str(self.card.get("description") or "")[:MAX_DESCRIPTION]

    def with_card_of(self, other: Offer) -> Offer:
        """With what the hub knows of the same worker by its card."""
        return replace(
            self,
            card=other.card,
            streaming=other.streaming,
            replays=other.replays,
            reads_files=other.reads_files,
            interfaces=other.interfaces,
        )

    @property
    def durable(self) -> bool:
        """Its tasks do not end with its process: another hub, for example."""
        return self.replays and is_durable(self.card)

    @property
    def pauses_in_process(self) -> bool:
        """Its paused tasks end with its process. Other workers keep them in a store, or have lost them without a sign."""
        return self.replays and not self.durable

    @property
    def skills(self) -> tuple[JsonObject, ...]:
        return tuple(self.card.get("skills") or ())

    @property
    def declared_skills(self) -> tuple[str, ...]:
        """Their ids. None: it takes calls for any skill, as a worker does whose one skill is its role."""
        ids = tuple(str(skill.get("id") or skill.get("name") or "") for skill in self.skills)
        return () if ids == (self.worker.role,) else ids

    def offers(self, skill: str) -> bool:
        """By its id or its name."""
        return skill in self.skill_names

    @property
    def skill_names(self) -> tuple[str, ...]:
        """What its skills can be called by, which may be the same twice."""
        names = [one.get(member) for one in self.skills for member in ("id", "name")]
        return tuple(name for name in names if isinstance(name, str))

    @property
    def tags(self) -> frozenset[str]:
        return frozenset(str(tag) for skill in self.skills for tag in skill.get("tags") or ())

    def preferred_dialect(self, wished: str) -> str:
        """The dialect for calls to it: the wished one if it has that."""
        for interface in self.interfaces:
            if interface.dialect == wished:
                return wished
        return self.interfaces[0].dialect if self.interfaces else "0.3"

    def reached(self, dialect: str) -> Interface:
        """The interface for that dialect: JSON-RPC before REST."""
        other: Interface | None = None
        for interface in self.interfaces:
            if interface.dialect == dialect:
                if interface.binding == JSONRPC:
                    return interface
                other = other or interface
        return other or Interface(self.url, JSONRPC, dialect)

    def capability(self, name: str) -> Any:
        return (self.card.get("capabilities") or {}).get(name)


class ConfiguredAgent(NamedTuple):
    """An agent of the hub's configuration, which does not enrol. Without `instance`: one per address of the URL's host.
    `credential`: as of an offer.
    """

    role: str
    url: str
    instance: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    credential: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat reports. None: not reported, the hub keeps the last value. `was_away`: since the last one the worker did
    not answer whoever sends them.
    """

    in_flight: int | None = None
    capacity: int | None = None
    draining: bool | None = None
    was_away: bool = False


class LeaseProof(NamedTuple):
    """Proof that a heartbeat comes from the holder of the lease. None: not given."""

    epoch: int | None
    secret: str | None


@dataclass(slots=True)
class FailedCalls:
    """A worker's calls that failed in a row, since its last success. Times are monotonic."""

    since: float
    count: int = 0
    pause: float = 0.0
    """Seconds without a call before a trial call. Zero: it gets calls."""
    due: float = 0.0
    """When the next trial call may come; while it gets calls, when it is next compared with the others of its role."""
    trial: TaskId | None = None
    """The trial call that it has."""


@dataclass(frozen=True, slots=True)
class CardState:
    """What became of the hub's reading of a card. `url`: where the card is, with its `etag`; empty: not found yet. `read_at`:
    wall clock, for people; 0: never. `note`: why it was not read, or what of it the hub does not follow. `due`: when it is
    read next, monotonic. `failures`: in a row.
    """

    worker_url: str
    url: str = ""
    etag: str = ""
    read_at: float = 0.0
    note: str = ""
    due: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class Registration:
    """A live lease as this hub sees it.

    One object per lease. The engine and the hub's counters change it in place, because routing must not copy a thousand of
    them per call. Only the event loop's thread uses it.
    """

    workspace: str
    offer: Offer
    epoch: int
    boot: str
    secret: str
    ttl: timedelta
    owner: str = ""
    """The name of the principal that enrolled it."""
    token: str = ""
    """The id of its holder's token that was used last. Empty: not known, or one that never ends."""
    health: Health = Health.READY
    reason: str = ""
    in_flight: int = 0
    """This hub's calls that are in progress."""
    other_in_flight: int = 0
    """Other calls that the worker had at its last beat: of other hubs, or made around them."""
    failed_calls: FailedCalls | None = None
    """None: its last call succeeded, or it had none."""
    last_success: float = -inf
    """When a call last succeeded. Monotonic."""
    was_away: bool = False
    """It did not answer for a while and beats again: perhaps it was started anew. Whoever acts on that sets it back."""
    card_state: CardState | None = None
    """None: it sent its card, or the hub has not begun to read it."""
    registered_at: float = 0.0
    """Wall clock, for people. The engine decides on expiry with its own clock."""
    last_seen: float = 0.0
    worker: WorkerId = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self.offer.worker

    @property
    def load(self) -> int:
        """This hub's calls as of now, and the others as of the worker's last beat."""
        return self.in_flight + self.other_in_flight

    def report(self, in_flight: int) -> None:
        """A beat tells how many calls the worker has. Those of this hub are among them; the hub knows better when they end.

        The hub counts a call before the worker has it and until after its end, so that hardly any of its own is taken for
        another: only one that ends while the beat is on its way.
        """
        self.other_in_flight = max(0, in_flight - self.in_flight)

    @property
    def drains_itself(self) -> bool:
        """It is about to stop. One that an operator drains has a reason."""
        return self.health is Health.DRAINING and not self.reason

    @property
    def full(self) -> bool:
        return self.offer.capacity is not None and self.in_flight >= self.offer.capacity


class EndedLease(NamedTuple):
    """The end of a lease: it expired, was withdrawn, or another process took the name. `token`: as of a registration."""

    offer: Offer
    epoch: int
    boot: str
    withdrawn: bool
    token: str = ""


class ChangeKind(StrEnum):
    ENROLLED = "enrolled"
    CHANGED = "changed"
    DRAINING = "draining"
    SUSPECT = "suspect"
    FAILING = "failing"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class RegistryChange(NamedTuple):
    """One entry of the registry feed. `revision` rises by one with each change of the workspace, also across restarts.
    `reason`: of the health.
    """

    revision: int
    kind: ChangeKind
    workspace: str
    worker: WorkerId
    epoch: int
    health: Health | None
    at: float
    reason: str = ""
