"""The answers of the hub's own API: what a handler returns, and its OpenAPI schema at once.

They are structs of msgspec, because the hub makes them itself: mypy checks their members, so nothing has to when it runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.ids import INSTANCE, RESERVED_ROLES, ROLE
from rolecall.model.principal import Kind, Right
from rolecall.model.task import TaskChangeKind
from rolecall.model.worker import ChangeKind, Health

_RESERVED = "|".join(sorted(RESERVED_ROLES))
ROLE_SCHEMA: JsonObject = {"type": "string", "pattern": f"^{ROLE}$", "not": {"enum": sorted(RESERVED_ROLES)}}
INSTANCE_SCHEMA: JsonObject = {"type": "string", "pattern": f"^{INSTANCE}$"}
WORKER_SCHEMA: JsonObject = {"type": "string", "pattern": f"^{ROLE}:{INSTANCE}$", "not": {"pattern": f"^({_RESERVED}):"}}
AGENT_SCHEMA: JsonObject = {"type": "string", "pattern": f"^{ROLE}(:{INSTANCE})?$", "not": {"pattern": f"^({_RESERVED})(:|$)"}}
"""A role, or one worker."""

Role = Annotated[str, Meta(extra_json_schema=ROLE_SCHEMA)]
Instance = Annotated[str, Meta(extra_json_schema=INSTANCE_SCHEMA)]
Worker = Annotated[str, Meta(extra_json_schema=WORKER_SCHEMA)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Count = Annotated[int, Meta(ge=0)]
Yes = Annotated[bool, Meta(extra_json_schema={"enum": [True]})]
No = Annotated[bool, Meta(extra_json_schema={"enum": [False]})]
Document = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
"""Bytes that are JSON already."""


class Answer(Struct, forbid_unknown_fields=True):
    """An answer has exactly these members."""


class Problem(Answer):
    """An error, as in RFC 9457. `reason` identifies it."""

    type: Literal["about:blank"]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    reason: Annotated[str, Meta(pattern="^[A-Z_]+$")]
    registered: No | UnsetType = UNSET


# --- the caller


class TokenHolder(Answer):
    """The holder of the token. On a hub without tokens every caller is `local`, an admin."""

    name: str
    kind: Kind
    workspace: str
    rights: list[Right]


# --- workers


class FileStore(Answer):
    """`url`: what the URLs of the hub's files begin with. `max_size`: bytes of a file."""

    url: str
    max_size: Count


class Lease(Answer):
    """A worker's registration. `lease` is its secret, `heartbeat_seconds` includes jitter; `ttl_seconds` 0: no expiry. `files`:
    not there if the hub stores none.
    """

    name: Worker
    role: Role
    instance_id: Instance
    epoch: Count
    lease: str
    ttl_seconds: float
    heartbeat_seconds: float
    registered: Yes
    expires_in: float | None
    state: Health
    files: FileStore | UnsetType = UNSET


class Withdrawn(Answer):
    name: Worker
    registered: No


class ProbeResult(Answer):
    """Whether the hub can connect to the worker now."""

    name: Worker
    url: str
    reachable: bool


class AgentCapabilities(Answer):
    streaming: bool
    push_notifications: bool


class Load(Answer):
    in_flight: Count
    capacity: int | None


class AgentSkill(Answer):
    """As in the worker's card."""

    id: Any
    name: Any
    description: Any
    tags: Any


class Agent(Answer):
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
    idempotent: bool
    epoch: Count
    reason: str


class CardRead(Answer):
    """What became of the hub's reading of the card. `url`: where the card is, empty if it was not found. `at`: when the hub
    read it last. `note`: why it could not, or what of the card it does not follow.
    """

    url: str
    at: Time | None
    note: str


class AgentAndCard(Agent):
    """A live worker with its card. `card_read` is there if it enrolled with a URL alone, so that the hub reads the card."""

    card: JsonObject
    card_read: CardRead | UnsetType = UNSET


class Agents(Answer):
    agents: list[Agent]
    count: Count
    next_cursor: str | None
    routing_note: str


class Change(Answer):
    """The `data` of one event of the feed."""

    revision: Count
    event: ChangeKind
    name: Worker
    role: Role
    instance_id: Instance
    epoch: Count
    state: Health | None
    reason: str
    at: Time


# --- tasks


class Cost(Answer):
    """`amount`: a decimal number, exact."""

    amount: Annotated[str, Meta(pattern="^[0-9]+([.][0-9]+)?$")]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$")]


class UsageItem(Answer):
    """What was used of a model; of one that was not named if `model` is null."""

    model: str | None
    input_tokens: Count
    output_tokens: Count
    cost: Cost | None


class UsageSum(Answer):
    """A sum of days. Members are those that the sums are told apart `by`. `holder` null: of holders that were erased."""

    input_tokens: Count
    output_tokens: Count
    costs: list[Cost]
    role: str | UnsetType = UNSET
    holder: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    day: Annotated[str, Meta(extra_json_schema={"format": "date"})] | UnsetType = UNSET


class UsageSums(Answer):
    """In the order of their names."""

    sums: list[UsageSum]
    next_cursor: str | None


class TaskItem(Answer):
    """`usage`: by model and currency; not there if nothing was reported. `tree_usage`: of a root in a list, the sums of its
    tree, if a task below it has used something. `question` and `since` are there while the task waits for its caller: what its
    worker asks, in words (at most 4,000 characters; empty if the question has none), and since when. `child`: the task that it
    has started whose question this is; an answer to either goes on. In a list also `asked`: the beginning of its first message,
    in one line (at most 200 characters); and of one that has failed, or was rejected or canceled, `detail`: what its last
    status says (at most 500), and `reason`: the code, if the hub itself has ended it. They are not there if there is none, or
    if what they are read from is larger than 32 KiB. `holder`: whose it is, where it may be another's than the caller's; then
    nothing of what is in it is there.
    """

    id: str
    role: str
    worker: str | None
    context_id: str
    state: TaskState
    created: Time
    updated: Time
    events: Count
    holder: str | UnsetType = UNSET
    usage: list[UsageItem] | UnsetType = UNSET
    tree_usage: list[UsageItem] | UnsetType = UNSET
    question: str | UnsetType = UNSET
    child: str | UnsetType = UNSET
    since: Time | UnsetType = UNSET
    asked: str | UnsetType = UNSET
    reason: Annotated[str, Meta(pattern="^[A-Z_]+$")] | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class TaskSummary(Answer):
    """What is kept of a task whose log has been deleted. `events`: how many there were."""

    id: str
    role: str
    worker: str | None
    context_id: str
    state: TaskState
    created: Time
    updated: Time
    events: Count


class TaskSummaries(Answer):
    """Last changed first."""

    summaries: list[TaskSummary]
    next_cursor: str | None


class Tasks(Answer):
    """Last changed first. `total` stops at 10,000, which means at least so many."""

    tasks: list[TaskItem]
    total: Count
    next_cursor: str | None


class BudgetItem(Answer):
    """What a task was called with, and what it and all below it have spent of that. Null: the budget does not bound it."""

    tokens: Count | None
    cost: Cost | None
    spent_tokens: Count | None
    spent_cost: Cost | None


class BranchItem(Answer):
    """A task of a tree. `parent` None: the root. `budget`: of a task that was called with one."""

    task: TaskItem
    parent: str | None
    deadline: Time | None
    goes_on: bool
    budget: BudgetItem | UnsetType = UNSET


class Tree(Answer):
    """The root first, then in the order in which they were started; at most a thousand. `usage`: the sums of them all."""

    tasks: list[BranchItem]
    usage: list[UsageItem]


class LoggedEvent(Answer):
    """An event as it is stored. `state`: that of the task after it, if the event has one. `dialect`: how the document is
    spelled.
    """

    cursor: Annotated[int, Meta(ge=1)]
    kind: EventKind
    state: TaskState | None
    dialect: str
    document: Document


class LogPage(Answer):
    """`next_after`: the `after` of the next page; null: the log has no more now."""

    events: list[LoggedEvent]
    next_after: Count | None


class Erased(Answer):
    """`erased`: how many tasks. `more`: the request reached its limit; repeat it."""

    erased: Count
    more: bool


class DecisionItem(Answer):
    """Why this worker was chosen: the rule, the number of candidates, and the workers, with reasons, that were passed over
    because calls to them fail (not more than ten).
    """

    task: str
    role: str
    worker: str
    rule: str
    candidates: Count
    failing: dict[str, str]
    at: Time


class TaskChangeItem(Answer):
    """The `data` of one event of the task feed: the task as of then, without `usage`. `parent`: the task that has started it.
    `holder`: whose it is. `reason`: the code, if the hub itself has ended it. `detail`: the words of one that has failed, or
    was rejected or canceled (at most 4,000 characters).
    """

    revision: Count
    event: TaskChangeKind
    task: TaskItem
    parent: str | None
    holder: str
    reason: Annotated[str, Meta(pattern="^[A-Z_]+$")] | UnsetType = UNSET
    detail: str | UnsetType = UNSET


# --- files


class FileItem(Answer):
    """A file that was uploaded. `size`: of the whole; null: not known yet. `offset`: how much has come. `expires_in`: seconds
    until it is deleted, unless a task has it by then, or more of it comes; null: it goes with its tasks. `sha256`, in hex: once
    it is complete.
    """

    id: str
    url: str
    name: str
    media_type: str
    size: Count | None
    offset: Count
    complete: bool
    expires_in: float | None
    sha256: str | UnsetType = UNSET


# --- push notifications


class DeadLetterItem(Answer):
    task: str
    config: str
    cursor: Count
    url: str
    reason: str
    at: Time


class DeadLetters(Answer):
    """Newest first."""

    dead_letters: list[DeadLetterItem]
    next_cursor: str | None


class Redelivery(Answer):
    task: str
    config: str
    cursor: Count
    redelivering: Yes


# --- operations


class Checks(Answer):
    """`disk`: more of the data folder's disk is free than the hub keeps free. `descriptors`: none was lacking in the last ten
    seconds. `tokens`: the token file can be read, if there is one. `audit`: the last entry of the audit log was written, if
    there is one.
    """

    store: bool
    disk: bool
    taking_calls: bool
    descriptors: bool
    tokens: bool
    audit: bool


class Ready(Answer):
    ready: bool
    checks: Checks


class DiskUse(Answer):
    """Bytes of the workspace's tasks, messages, logs and files, and how many it may store. `per_day`: by how many they grow, as
    in the last day; not there until the hub has run for an hour. `full_in_days`: when the limit is reached if they go on so;
    not there if they do not grow. `free`: of the data folder's disk, of which the hub keeps `reserve` free; shown only to
    callers that may read /metrics.
    """

    used: Count
    limit: Count
    per_day: int | UnsetType = UNSET
    full_in_days: float | UnsetType = UNSET
    free: Count | UnsetType = UNSET
    reserve: Count | UnsetType = UNSET


class HealthReport(Answer):
    """`build`: which of those with this version; empty: not known. `schema`: the version of the database. `workers`, `roles`
    and `disk` count the caller's workspace; `disk` is shown only with a token. `running_tasks` counts all workspaces, and is
    shown only to callers that may read /metrics.
    """

    status: Literal["ok", "degraded"]
    version: str
    build: str
    schema: Count
    uptime_seconds: float
    checks: Checks
    workers: Count
    roles: Count
    disk: DiskUse | UnsetType = UNSET
    running_tasks: Count | UnsetType = UNSET


# --- cards, in the forms of their own standards

Card = Annotated[JsonObject, Meta(extra_json_schema={"required": ["name", "description", "version", "capabilities", "skills"]})]
CatalogDocument = Annotated[JsonObject, Meta(extra_json_schema={"required": ["specVersion", "host", "entries"]})]
