"""The shapes of the hub's own APIs: what handlers are held to by their types is what the OpenAPI description says of them.

Answers have these members and no others. Of a request's body, members that are not listed are left alone. What goes beyond a
type (a pattern, a bound) stands beside it, in the words of JSON Schema.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from hub.inbound.api.operation_doc import Says
from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import INSTANCE, RESERVED_ROLES, ROLE
from rolecall.model.worker import ChangeKind, Health

_RESERVED = "|".join(sorted(RESERVED_ROLES))
_NO_NUL = "^[^\\x00]*$"
_KEY = {"maxLength": 128}

Role = Annotated[str, Says(pattern=f"^{ROLE}$", **{"not": {"enum": sorted(RESERVED_ROLES)}})]
Instance = Annotated[str, Says(pattern=f"^{INSTANCE}$")]
Worker = Annotated[str, Says(pattern=f"^{ROLE}:{INSTANCE}$", **{"not": {"pattern": f"^({_RESERVED}):"}})]
Segment = Annotated[str, Says(pattern="^[!-.0-~]{1,128}$")]
Position = Annotated[int, Says(minimum=1, maximum=2**31)]
Time = Annotated[str, Says(format="date-time")]
Count = Annotated[int, Says(minimum=0)]
Wish = Annotated[float, Says(minimum=0, maximum=1_000_000_000)]
Capacity = Annotated[int, Says(minimum=1, maximum=1_000_000_000)]
Whole = Annotated[int, Says(minimum=0, maximum=1_000_000_000)]
Nothing = Literal[""]
Short = Annotated[str, Says(maxLength=128, pattern=_NO_NUL)]
Line = Annotated[str, Says(maxLength=1000, pattern=_NO_NUL)]
Secret = Annotated[str, Says(maxLength=256, pattern=_NO_NUL)]


class Problem(TypedDict):
    """What went wrong, as in RFC 9457. `reason` is the word to tell errors apart by."""

    type: Literal["about:blank"]
    title: str
    status: Annotated[int, Says(minimum=400, maximum=599)]
    detail: str
    reason: Annotated[str, Says(pattern="^[A-Z_]+$")]
    registered: NotRequired[Literal[False]]


# --- workers


class SaidSkill(TypedDict, total=False):
    tags: list[Any] | None


class SaidCard(TypedDict, total=False):
    """The worker's A2A card, of 64 KiB at most unless the hub is set otherwise. Members that are not known are kept."""

    skills: Annotated[list[SaidSkill], Says(maxItems=100)] | None
    capabilities: JsonObject | None


class Enrolment(TypedDict, total=False):
    """What a worker says of itself."""

    url: Required[Annotated[str, Says(maxLength=2048, pattern="^https?://[^\\x00]+$")]]
    boot: Short | None
    description: Line | None
    card: SaidCard | None
    capabilities: JsonObject | None
    capacity: Capacity | None
    labels: Annotated[dict[str, Annotated[str, Says(maxLength=256)]], Says(maxProperties=32, propertyNames=_KEY)] | None
    models_supported: Annotated[list[Annotated[str, Says(maxLength=200)]], Says(maxItems=100)] | None
    authorization: Annotated[str, Says(maxLength=4096, pattern="^[ -~]*$")] | None
    ttl_seconds: Wish | None


class FlatMembers(Enrolment, total=False):
    """The same with its name inside: `name` as role or role:instance. `role` and `instance_id` win over it."""

    name: Annotated[str, Says(maxLength=200, pattern=f"^[^\\x00:]*(:{INSTANCE})?$")] | None
    role: Role | Nothing | None
    instance_id: Instance | Nothing | None


FlatEnrolment = Annotated[
    FlatMembers,
    Says(
        anyOf=[
            {"required": ["role"], "properties": {"role": {"type": "string", "minLength": 1}}},
            {"required": ["name"], "properties": {"name": {"type": "string", "pattern": f"^{ROLE}(:|$)"}}},
        ]
    ),
]


class Proof(TypedDict, total=False):
    """That the lease is one's own."""

    epoch: Whole | None
    lease: Secret | None


class Heartbeat(Proof, total=False):
    """A sign of life, and how busy the worker is."""

    in_flight: Whole | None
    capacity: Capacity | None
    draining: bool | None


class ProofInQuery(TypedDict, total=False):
    epoch: Whole
    lease: Secret


class Why(TypedDict, total=False):
    """Why a worker is drained."""

    reason: Any


class Lease(TypedDict):
    """A worker's registration. `lease` is its secret, `heartbeat_seconds` holds the jitter; `ttl_seconds` 0: for ever."""

    name: Worker
    role: Role
    instance_id: Instance
    epoch: Count
    lease: str
    ttl_seconds: float
    heartbeat_seconds: float
    registered: Literal[True]
    expires_in: float | None
    state: Health


class Withdrawn(TypedDict):
    name: Worker
    registered: Literal[False]


class Probed(TypedDict):
    """Whether the hub reaches that worker now."""

    name: Worker
    url: str
    reachable: bool


class Able(TypedDict):
    streaming: bool
    push_notifications: bool


class Load(TypedDict):
    in_flight: Count
    capacity: int | None


class ASkill(TypedDict):
    """As the worker's card has it."""

    id: Any
    name: Any
    description: Any
    tags: Any


class Agent(TypedDict):
    """A live worker."""

    name: Worker
    role: Role
    instance_id: Instance
    description: str
    url: str
    capabilities: Able
    last_seen: Time
    state: Health
    load: Load
    expires_in: float | None
    skills: list[ASkill]
    labels: dict[str, str]
    models_supported: list[str]
    epoch: Count
    reason: str


class AgentAndCard(Agent):
    """A live worker with its card."""

    card: JsonObject


class Agents(TypedDict):
    agents: list[Agent]
    count: Count
    next_cursor: str | None
    routing_note: str


class AgentFilter(TypedDict, total=False):
    role: str
    skill: Annotated[str, Says(description="Id or name of a skill.")]
    tag: str
    capability: str
    label: Annotated[list[str], Says(description="name=value, or name.")]
    q: Annotated[str, Says(description="Somewhere in name, description or skills.")]
    state: Health
    limit: Annotated[int, Says(minimum=1, maximum=1000, default=1000)]
    cursor: Annotated[str, Says(description="The next_cursor of the page before.")]


class Change(TypedDict):
    """One event of the feed: its `data`."""

    revision: Count
    event: ChangeKind
    name: Worker
    role: Role
    instance_id: Instance
    epoch: Count
    state: Health | None
    at: Time


Revision = Annotated[int, Says(minimum=0, maximum=10**18)]


class Since(TypedDict, total=False):
    after: Annotated[Revision, Says(description="As Last-Event-ID.")]


# --- tasks


class ATask(TypedDict):
    id: str
    role: str
    worker: str | None
    context_id: str
    state: TaskState
    created: Time
    updated: Time
    events: Count


class Tasks(TypedDict):
    """Newest change first."""

    tasks: list[ATask]
    total: Count
    next_cursor: str | None


class TaskFilter(TypedDict, total=False):
    role: str
    state: TaskState
    context_id: str
    limit: Annotated[int, Says(minimum=1, maximum=100, default=50)]
    cursor: Annotated[str, Says(description="The next_cursor of the page before.")]


class Decided(TypedDict):
    """Why this worker: by which rule, out of how many."""

    task: str
    role: str
    worker: str
    rule: str
    candidates: Count
    at: Time


# --- push notifications


class ADeadLetter(TypedDict):
    task: str
    config: str
    cursor: Count
    url: str
    reason: str
    at: Time


class DeadLetters(TypedDict):
    """Newest first."""

    dead_letters: list[ADeadLetter]
    next_cursor: str | None


class LetterPage(TypedDict, total=False):
    limit: Annotated[int, Says(minimum=1, maximum=100, default=50)]
    cursor: Annotated[str, Says(description="The next_cursor of the page before.")]


class Redelivering(TypedDict):
    task: str
    config: str
    cursor: Count
    redelivering: Literal[True]


# --- operations


class Checks(TypedDict):
    store: bool
    taking_calls: bool


class Ready(TypedDict):
    ready: bool
    checks: Checks


class Verbosely(TypedDict, total=False):
    verbose: Annotated[str, Says(description="Whatever its value: the checks one by one, as JSON.")]


class HowItIs(TypedDict):
    """`workers` and `roles` are those of the caller's workspace. `running_tasks` is about all workspaces: for whoever may see
    /metrics.
    """

    status: Literal["ok", "degraded"]
    version: str
    uptime_seconds: float
    checks: Checks
    workers: Count
    roles: Count
    running_tasks: NotRequired[Count]


# --- cards, in the forms of their own standards

Card = Annotated[JsonObject, Says(required=["name", "description", "version", "capabilities", "skills"])]
CatalogDocument = Annotated[JsonObject, Says(required=["specVersion", "host", "entries"])]


Version = Annotated[str, Says(pattern=r"^([01](\..*)?)?$", description="0.3 or 1.0; without it a card holds both.")]
