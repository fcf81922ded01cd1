"""The bodies and queries that the hub's own API takes: each is validator, documentation and OpenAPI schema at once."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from hub.inbound.api.answers import AGENT_SCHEMA, INSTANCE_SCHEMA, ROLE_SCHEMA, WORKER_SCHEMA
from hub.inbound.api.validation import (
    MAX_NUMBER,
    Body,
    Header,
    Like,
    Query,
    Reason,
    at_most,
    digits,
    text,
    whole,
    whole_float,
)
from rolecall.errors import OfferInvalid
from rolecall.model.a2a import JsonObject, TaskState
from rolecall.model.ids import INSTANCE, ROLE, is_instance, is_role, split_name
from rolecall.model.worker import MAX_DESCRIPTION, Health
from rolecall.protocol.text.timestamp import moment
from rolecall.protocol.workers.offers import MAX_SKILLS

ROLE_REASON = "must be 1 to 63 of a-z, 0-9, '.', '_', '-', begin with a letter or digit, and not be a reserved word"
INSTANCE_REASON = "must be 1 to 127 of letters, digits, '.', '_', ':', '-', and begin with a letter or digit"


def _check_role(name: str) -> str:
    if not is_role(name):
        raise ValueError
    return name


def _check_instance_in(name: str) -> str:
    _, instance = split_name(name)
    if instance is not None and not is_instance(instance):
        raise ValueError
    return name


def _text_or_none(value: str) -> str | None:
    return value or None


Role = Annotated[
    str, WithJsonSchema(ROLE_SCHEMA), AfterValidator(_check_role), Reason(ROLE_REASON, string_type="must be a string")
]
Instance = Annotated[str, Field(pattern=f"^{INSTANCE}$"), Reason(INSTANCE_REASON, string_type="must be a string")]

# The handlers read these names themselves, as a part of what the audit log records.
RoleInPath = Annotated[str, WithJsonSchema(ROLE_SCHEMA)]
InstanceInPath = Annotated[str, WithJsonSchema(INSTANCE_SCHEMA)]
WorkerInPath = Annotated[str, WithJsonSchema(WORKER_SCHEMA)]
AgentInPath = Annotated[str, WithJsonSchema(AGENT_SCHEMA)]
Segment = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[!-.0-~]{1,128}$"})]
Position = Annotated[int, *digits(1, 2**31)]

PageCursor = Annotated[str | None, BeforeValidator(_text_or_none), Field(description="The next_cursor of the page before.")]
PageLimit = Annotated[int, *digits(1, 100)]


# --- workers

Url = Annotated[
    str,
    *text(2048, **dict.fromkeys(("missing", "string_type", "string_too_short"), "is required, as a string")),
    # The address policy reads it.
    Field(min_length=1, json_schema_extra={"pattern": "^https?://[^\\x00]+$"}),
]
Name = Annotated[
    str,
    *text(200, value_error="has no valid instance behind its colon"),
    AfterValidator(_check_instance_in),
    Field(json_schema_extra={"pattern": f"^[^\\x00:]*(:{INSTANCE})?$"}),
]
Object = Annotated[JsonObject, Reason("must be an object")]
Labels = Annotated[
    dict[Annotated[str, Field(max_length=128)], Annotated[str, Field(max_length=256)]],
    *at_most(32),
    Reason("must be an object of at most 32 short strings"),
]
Models = Annotated[
    list[Annotated[str, Field(max_length=200)]],
    Field(max_length=100),
    Reason("must be a list of at most 100 short strings"),
]
Authorization = Annotated[
    str,
    Field(max_length=4096, pattern="^[ -~]*$"),
    Reason(
        "must be one line of ASCII, as an Authorization header has it",
        string_type="must be a string",
        string_too_long="must be at most 4096 characters, without NUL",
    ),
]
Ttl = Annotated[float, Field(ge=0, le=MAX_NUMBER), Reason(f"must be a number from 0 to {MAX_NUMBER:g}")]


class SkillInput(Body):
    tags: Annotated[list[Any], Reason("must be a list of strings")] | None = None


Skills = Annotated[list[SkillInput], Field(max_length=MAX_SKILLS), Reason(f"must be a list of at most {MAX_SKILLS} objects")]


class CardInput(Body):
    """The worker's A2A card, at most 64 KiB unless the hub is configured otherwise. Unknown members are kept."""

    skills: Skills | None = None
    capabilities: Object | None = None


class Enrolment(Body):
    """What a worker declares about itself."""

    url: Url
    boot: Annotated[str, *text(128)] | None = None
    description: Annotated[str, *text(MAX_DESCRIPTION)] | None = None
    card: Annotated[Object, Like(CardInput)] | None = None
    capabilities: Object | None = None
    capacity: Annotated[int, *whole(1, MAX_NUMBER)] | None = None
    labels: Labels | None = None
    models_supported: Models | None = None
    idempotent: Annotated[bool, Reason("must be true or false")] | None = None
    authorization: Authorization | None = None
    ttl_seconds: Ttl | None = None


_NAMED: list[Any] = [
    {"required": ["role"], "properties": {"role": {"type": "string", "minLength": 1}}},
    {"required": ["name"], "properties": {"name": {"type": "string", "pattern": f"^{ROLE}(:|$)"}}},
]


class FlatEnrolment(Enrolment):
    """An enrolment with the name in the body: `name` is role or role:instance. `role` and `instance_id` win over it."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _NAMED})

    name: Name | None = None
    role: Role | Literal[""] | None = None
    instance_id: Instance | Literal[""] | None = None


class Proof(Struct, frozen=True):
    """Proof that the lease belongs to the sender."""

    epoch: Annotated[float, *whole_float(0, MAX_NUMBER)] | UnsetType | None = UNSET
    lease: Annotated[str, *text(256)] | UnsetType | None = UNSET


class Heartbeat(Proof, frozen=True):
    """A heartbeat, and the worker's load."""

    in_flight: Annotated[float, *whole_float(0, MAX_NUMBER)] | None = None
    capacity: Annotated[float, *whole_float(1, MAX_NUMBER)] | None = None
    draining: Annotated[bool, Reason("must be true or false")] | None = None
    was_away: Annotated[bool, Reason("must be true or false")] | None = None


class ProofInQuery(Query):
    """The same in a query. A member of the body wins, even if it is null."""

    refusal = OfferInvalid

    epoch: Annotated[int, *digits(0, MAX_NUMBER)] | None = None
    lease: Annotated[str, *text(256)] | None = None


class DrainRequest(Body):
    """Why a worker is drained."""

    reason: Any = None


class AgentFilter(Query):
    role: str | None = None
    skill: Annotated[str | None, Field(description="Id or name of a skill.")] = None
    tag: str | None = None
    capability: str | None = None
    label: Annotated[tuple[str, ...], Field(description="name=value, or name.")] = ()
    q: Annotated[str | None, Field(description="Text in name, description or skills.")] = None
    state: Annotated[Health, Reason(f"must be one of {', '.join(Health)}")] | None = None
    limit: Annotated[int, *digits(1, 1000)] = 1000
    cursor: PageCursor = None


Revision = Annotated[Annotated[int, *digits(0, 10**18)] | None, BeforeValidator(_text_or_none)]


class FeedQuery(Query):
    after: Annotated[Revision, Field(description="The same as Last-Event-ID.")] = None
    last_event_id: Annotated[Revision, Header("Last-Event-ID")] = None

    @property
    def resume_after(self) -> int | None:
        """The header is of a client that comes back by itself, with the query that it began with."""
        return self.after if self.last_event_id is None else self.last_event_id


# --- tasks, push notifications, operations, cards


def _split_names(values: list[str]) -> list[str]:
    return list(dict.fromkeys(name for value in values for name in value.split(",")))


States = Annotated[
    tuple[TaskState, ...],
    BeforeValidator(_split_names),
    Reason(f"must be one or several of {', '.join(TaskState)}"),
    Field(description="Several are repeated, or separated by commas."),
]


def _moment_of(value: str) -> float:
    found = moment(value)
    if found is None:
        raise ValueError
    return found


Moment = Annotated[
    float | None,
    BeforeValidator(_moment_of),
    WithJsonSchema({"type": "string", "format": "date-time"}),
    Reason("must be a time such as 2026-01-31T12:00:00Z"),
]


AllHolders = Annotated[
    bool, Reason("must be true or false"), Field(description="Also of other holders in the workspace, for operators.")
]


class TaskFilter(Query):
    role: str | None = None
    state: States = ()
    context_id: str | None = None
    since: Annotated[Moment, Field(description="Changed then or later.")] = None
    limit: PageLimit = 50
    cursor: PageCursor = None


class TaskListQuery(TaskFilter):
    all_holders: AllHolders = False


class TaskFeedQuery(FeedQuery):
    role: str | None = None
    state: States = ()


class EraseTaskQuery(Query):
    all_holders: AllHolders = False


class EraseQuery(Query):
    context_id: Annotated[str | None, BeforeValidator(_text_or_none), Field(description="All tasks in this context.")] = None
    holder: Annotated[str | None, BeforeValidator(_text_or_none), Field(description="Those of this holder, for operators.")] = (
        None
    )
    ended_by: Annotated[Moment, Field(description="Only those that had ended then.")] = None


def _from_day(value: str) -> date:
    if len(value) != len("2026-11-20"):
        raise ValueError
    return date.fromisoformat(value)


Day = Annotated[Annotated[date, BeforeValidator(_from_day)] | None, Reason("must be a day of UTC, such as 2026-11-20")]


class UsageFilter(Query):
    since: Annotated[Day, Field(description="The first day, of UTC.")] = None
    until: Annotated[Day, Field(description="The last day, of UTC.")] = None
    role: str | None = None
    holder: Annotated[str | None, BeforeValidator(_text_or_none), Field(description="Of others: for operators.")] = None
    by: Annotated[
        tuple[Literal["role", "holder", "model", "day"], ...],
        BeforeValidator(_split_names),
        Reason("must be one or several of role, holder, model, day"),
        Field(description="What is told apart. Several are repeated, or separated by commas."),
    ] = ("role", "holder")
    limit: Annotated[int, *digits(1, 1000)] = 100
    cursor: PageCursor = None


class LogQuery(Query):
    after: Annotated[int, *digits(0, 2**31), Field(description="The cursor of the last event that is known.")] = 0
    limit: Annotated[int, *digits(1, 1000)] = 100


class Conditions(Query):
    """Of a download."""

    range: Annotated[str, Header("Range")] = ""
    if_range: Annotated[str, Header("If-Range")] = ""
    etag: Annotated[str, Header("If-None-Match")] = ""


class ArtifactQuery(Conditions):
    part: Annotated[
        Annotated[int, *digits(1, 2**31)] | None,
        Field(description="One part of an artifact that has several of different kinds."),
    ] = None


FileInPath = Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{32}$"})]
_MAX_BYTES = 2**50
"""As much as `max_file` can be."""
Complete = Annotated[
    Literal["?0", "?1"],
    Header("Upload-Complete"),
    Reason("must be ?0 or ?1"),
    Field(description="?0: more of the file comes later."),
]


class UploadStart(Query):
    name: Annotated[str, *text(255), Field(description="The name of the file.")] = ""
    media_type: Annotated[
        str,
        Header("Content-Type"),
        Field(pattern="^[!-.0-~]+/[!-~][ -~]*$", max_length=255, description="Of the file."),
        Reason("must be a media type"),
    ] = "application/octet-stream"
    length: Annotated[
        Annotated[int, *digits(0, _MAX_BYTES)] | None,
        Header("Upload-Length"),
        Field(description="Bytes of the whole file. If fewer come, the upload can go on."),
    ] = None
    complete: Complete = "?1"


class UploadPiece(Query):
    offset: Annotated[int, *digits(0, _MAX_BYTES), Header("Upload-Offset"), Field(description="Bytes that have come before.")]
    complete: Complete = "?1"


class DeadLetterQuery(Query):
    limit: PageLimit = 50
    cursor: PageCursor = None


class HealthQuery(Query):
    verbose: Annotated[str | None, Field(description="With any value: each check, as JSON.")] = None


class DocumentQuery(Query):
    """What a client has of a document: the tags of its copies, or else the date of one."""

    etag: Annotated[str, Header("If-None-Match")] | None = None
    since: Annotated[str, Header("If-Modified-Since")] = ""


class CardQuery(DocumentQuery):
    version: Annotated[
        str | None,
        Header("A2A-Version"),
        Field(description="0.3 or 1.0; with any other, or without it, a card is valid in both."),
    ] = None
