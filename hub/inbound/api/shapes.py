"""The request and answer types of the hub's own APIs: type checker and OpenAPI description both use them.

Answers have exactly these members. In a request's body, unknown members are ignored. Patterns and bounds stand beside a type
as JSON Schema keywords.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

from hub.inbound.api.offers import (
    MAX_AUTHORIZATION,
    MAX_BOOT,
    MAX_DESCRIPTION,
    MAX_LABEL_KEY,
    MAX_LABEL_VALUE,
    MAX_LABELS,
    MAX_MODEL,
    MAX_MODELS,
    MAX_NAME,
    MAX_NUMBER,
    MAX_SECRET,
    MAX_SKILLS,
    MAX_URL,
)
from hub.inbound.api.operation_doc import SchemaHints
from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import INSTANCE, RESERVED_ROLES, ROLE
from rolecall.model.worker import ChangeKind, Health

_RESERVED = "|".join(sorted(RESERVED_ROLES))
_NO_NUL = "^[^\\x00]*$"
_LABEL_KEY = {"maxLength": MAX_LABEL_KEY}

Role = Annotated[str, SchemaHints(pattern=f"^{ROLE}$", **{"not": {"enum": sorted(RESERVED_ROLES)}})]
Instance = Annotated[str, SchemaHints(pattern=f"^{INSTANCE}$")]
Worker = Annotated[str, SchemaHints(pattern=f"^{ROLE}:{INSTANCE}$", **{"not": {"pattern": f"^({_RESERVED}):"}})]
Segment = Annotated[str, SchemaHints(pattern="^[!-.0-~]{1,128}$")]
Position = Annotated[int, SchemaHints(minimum=1, maximum=2**31)]
Time = Annotated[str, SchemaHints(format="date-time")]
Count = Annotated[int, SchemaHints(minimum=0)]
TtlSeconds = Annotated[float, SchemaHints(minimum=0, maximum=MAX_NUMBER)]
Capacity = Annotated[int, SchemaHints(minimum=1, maximum=MAX_NUMBER)]
CountInput = Annotated[int, SchemaHints(minimum=0, maximum=MAX_NUMBER)]
EmptyText = Literal[""]
Boot = Annotated[str, SchemaHints(maxLength=MAX_BOOT, pattern=_NO_NUL)]
Description = Annotated[str, SchemaHints(maxLength=MAX_DESCRIPTION, pattern=_NO_NUL)]
Secret = Annotated[str, SchemaHints(maxLength=MAX_SECRET, pattern=_NO_NUL)]


class Problem(TypedDict):
    """An error, as in RFC 9457. `reason` identifies it."""

    type: Literal["about:blank"]
    title: str
    status: Annotated[int, SchemaHints(minimum=400, maximum=599)]
    detail: str
    reason: Annotated[str, SchemaHints(pattern="^[A-Z_]+$")]
    registered: NotRequired[Literal[False]]


# --- workers


class SkillInput(TypedDict, total=False):
    tags: list[Any] | None


class CardInput(TypedDict, total=False):
    """The worker's A2A card, at most 64 KiB unless the hub is configured otherwise. Unknown members are kept."""

    skills: Annotated[list[SkillInput], SchemaHints(maxItems=MAX_SKILLS)] | None
    capabilities: JsonObject | None


class Enrolment(TypedDict, total=False):
    """What a worker declares about itself."""

    url: Required[Annotated[str, SchemaHints(maxLength=MAX_URL, pattern="^https?://[^\\x00]+$")]]
    boot: Boot | None
    description: Description | None
    card: CardInput | None
    capabilities: JsonObject | None
    capacity: Capacity | None
    labels: (
        Annotated[
            dict[str, Annotated[str, SchemaHints(maxLength=MAX_LABEL_VALUE)]],
            SchemaHints(maxProperties=MAX_LABELS, propertyNames=_LABEL_KEY),
        ]
        | None
    )
    models_supported: Annotated[list[Annotated[str, SchemaHints(maxLength=MAX_MODEL)]], SchemaHints(maxItems=MAX_MODELS)] | None
    authorization: Annotated[str, SchemaHints(maxLength=MAX_AUTHORIZATION, pattern="^[ -~]*$")] | None
    ttl_seconds: TtlSeconds | None


class FlatMembers(Enrolment, total=False):
    """An enrolment with the name in the body: `name` is role or role:instance. `role` and `instance_id` win over it."""

    name: Annotated[str, SchemaHints(maxLength=MAX_NAME, pattern=f"^[^\\x00:]*(:{INSTANCE})?$")] | None
    role: Role | EmptyText | None
    instance_id: Instance | EmptyText | None


FlatEnrolment = Annotated[
    FlatMembers,
    SchemaHints(
        anyOf=[
            {"required": ["role"], "properties": {"role": {"type": "string", "minLength": 1}}},
            {"required": ["name"], "properties": {"name": {"type": "string", "pattern": f"^{ROLE}(:|$)"}}},
        ]
    ),
]


class Proof(TypedDict, total=False):
    """Proof that the lease belongs to the sender."""

    epoch: CountInput | None
    lease: Secret | None


class Heartbeat(Proof, total=False):
    """A heartbeat, and the worker's load."""

    in_flight: CountInput | None
    capacity: Capacity | None
    draining: bool | None


class ProofInQuery(TypedDict, total=False):
    epoch: CountInput
    lease: Secret


class DrainRequest(TypedDict, total=False):
    """Why a worker is drained."""

    reason: Any


class Lease(TypedDict):
    """A worker's registration. `lease` is its secret, `heartbeat_seconds` includes jitter; `ttl_seconds` 0: no expiry."""

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


class ProbeResult(TypedDict):
    """Whether the hub can connect to the worker now."""

    name: Worker
    url: str
    reachable: bool


class AgentCapabilities(TypedDict):
    streaming: bool
    push_notifications: bool


class Load(TypedDict):
    in_flight: Count
    capacity: int | None


class AgentSkill(TypedDict):
    """As in the worker's card."""

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
    capabilities: AgentCapabilities
    last_seen: Time
    state: Health
    load: Load
    expires_in: float | None
    skills: list[AgentSkill]
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
    skill: Annotated[str, SchemaHints(description="Id or name of a skill.")]
    tag: str
    capability: str
    label: Annotated[list[str], SchemaHints(description="name=value, or name.")]
    q: Annotated[str, SchemaHints(description="Text in name, description or skills.")]
    state: Health
    limit: Annotated[int, SchemaHints(minimum=1, maximum=1000, default=1000)]
    cursor: Annotated[str, SchemaHints(description="The next_cursor of the page before.")]


class Change(TypedDict):
    """The `data` of one event of the feed."""

    revision: Count
    event: ChangeKind
    name: Worker
    role: Role
    instance_id: Instance
    epoch: Count
    state: Health | None
    at: Time


Revision = Annotated[int, SchemaHints(minimum=0, maximum=10**18)]


class FeedQuery(TypedDict, total=False):
    after: Annotated[Revision, SchemaHints(description="The same as Last-Event-ID.")]


# --- tasks


class TaskItem(TypedDict):
    id: str
    role: str
    worker: str | None
    context_id: str
    state: TaskState
    created: Time
    updated: Time
    events: Count


class Tasks(TypedDict):
    """Last changed first."""

    tasks: list[TaskItem]
    total: Count
    next_cursor: str | None


class TaskFilter(TypedDict, total=False):
    role: str
    state: TaskState
    context_id: str
    limit: Annotated[int, SchemaHints(minimum=1, maximum=100, default=50)]
    cursor: Annotated[str, SchemaHints(description="The next_cursor of the page before.")]


class DecisionItem(TypedDict):
    """Why this worker was chosen: the rule, and the number of candidates."""

    task: str
    role: str
    worker: str
    rule: str
    candidates: Count
    at: Time


# --- push notifications


class DeadLetterItem(TypedDict):
    task: str
    config: str
    cursor: Count
    url: str
    reason: str
    at: Time


class DeadLetters(TypedDict):
    """Newest first."""

    dead_letters: list[DeadLetterItem]
    next_cursor: str | None


class DeadLetterQuery(TypedDict, total=False):
    limit: Annotated[int, SchemaHints(minimum=1, maximum=100, default=50)]
    cursor: Annotated[str, SchemaHints(description="The next_cursor of the page before.")]


class Redelivery(TypedDict):
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


class HealthQuery(TypedDict, total=False):
    verbose: Annotated[str, SchemaHints(description="With any value: each check, as JSON.")]


class HealthReport(TypedDict):
    """`workers` and `roles` count the caller's workspace. `running_tasks` counts all workspaces, and is shown only to callers
    that may read /metrics.
    """

    status: Literal["ok", "degraded"]
    version: str
    uptime_seconds: float
    checks: Checks
    workers: Count
    roles: Count
    running_tasks: NotRequired[Count]


# --- cards, in the forms of their own standards

Card = Annotated[JsonObject, SchemaHints(required=["name", "description", "version", "capabilities", "skills"])]
CatalogDocument = Annotated[JsonObject, SchemaHints(required=["specVersion", "host", "entries"])]


Version = Annotated[
    str, SchemaHints(pattern=r"^([01](\..*)?)?$", description="0.3 or 1.0; without it a card is valid in both.")
]
