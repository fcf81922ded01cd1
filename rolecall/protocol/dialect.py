"""What differs between the versions of A2A, behind one interface. The package of each version has one instance of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rolecall.errors import RouteError
from rolecall.model.a2a import DialectRules, EventKind, Ids, JsonObject, TaskState, WorkerEvent
from rolecall.model.card import Profile
from rolecall.model.command import CancelTask, GetTask, ListTasks, NamePush, Send, SetPush, Subscribe, Target
from rolecall.model.content import Content, Status
from rolecall.model.ids import Cursor
from rolecall.model.push import PushConfig
from rolecall.protocol.faults import NO_FAULTS, DialectFaults
from rolecall.protocol.methods import Operation


class Shape(Protocol):
    """How content is spelled. Documents are bare: without the 1.0 member that wraps them."""

    def read(self, kind: EventKind, document: JsonObject) -> Content:
        """Untranslatable if the document has no meaning."""

    def write(self, content: Content) -> JsonObject: ...
    def state_name(self, state: TaskState) -> str: ...
    def file_url(self, part: JsonObject) -> str | None:
        """The url of a file part; None: it has none, or is no file part."""

    def with_bytes(self, part: JsonObject, content: str) -> JsonObject:
        """A file part with its bytes, as base64, in place of its url."""


class Requests(Protocol):
    """Parses the calls of callers. Changes `params` and keeps it. `dialects`: see `GetTask`. All raise InvalidParams."""

    def read_send(
        self,
        params: JsonObject,
        target: Target,
        *,
        trace: str | None = None,
        key: str | None = None,
        extensions: tuple[str, ...] = (),
    ) -> Send: ...

    def read_get(self, params: JsonObject, target: Target, dialects: tuple[str, ...]) -> GetTask: ...
    def read_cancel(self, params: JsonObject, target: Target, dialects: tuple[str, ...]) -> CancelTask: ...
    def read_subscribe(
        self, params: JsonObject, target: Target, after: Cursor | None, dialects: tuple[str, ...]
    ) -> Subscribe: ...
    def read_list(self, params: JsonObject, target: Target) -> ListTasks: ...
    def read_set_push(self, params: JsonObject, target: Target) -> SetPush: ...
    def read_name_push(self, params: JsonObject, target: Target, *, required: bool = True) -> NamePush:
        """`required`: a single config has to be named by its id, where the dialect says so."""

    def read_card(self, params: JsonObject, target: Target) -> str | None:
        """The role whose card is requested; None: the hub's own."""


class Answers(Protocol):
    """Writes answers around bytes that are already serialised."""

    def wrapped(self, kind: EventKind, body: bytes) -> bytes:
        """The answer to a message, or an event of a stream."""

    def refusal(self, send: Send, error: RouteError, at: str) -> bytes | None:
        """The answer to a message that reaches no worker. None: it is an error."""

    def notice(self, kind: EventKind, body: bytes) -> bytes:
        """What a webhook gets for one event."""

    def push_config(self, config: PushConfig) -> JsonObject:
        """Without its secrets."""

    def push_configs(self, configs: Sequence[JsonObject]) -> Any: ...


class RestForm(Protocol):
    """What REST has that JSON-RPC has not."""

    AT_ROOT: bool
    """The addresses without a prefix were made for this dialect."""

    def matches(self, message: Any) -> bool:
        """The message of a call is spelled in this dialect."""

    def check(self, body: JsonObject) -> None:
        """InvalidParams: a form of the dialect that the hub does not support."""

    def push_params(self, task: str, config: str | None, given: JsonObject, *, sets: bool) -> JsonObject:
        """The parameters of a call about push configs, as in JSON-RPC. `sets`: `given` is a config."""


class WorkerCalls(Protocol):
    """Calls to workers."""

    BINDINGS: tuple[str, ...]
    """Those that the hub uses with workers, and that its own cards offer."""
    SEND: str
    STREAM: str
    GET: str
    CANCEL: str
    SUBSCRIBE: str

    def send_params(self, params: JsonObject, message: JsonObject, *, stream: bool) -> JsonObject: ...
    def foreign_params(self, message: JsonObject, metadata: JsonObject, modes: list[str], *, stream: bool) -> JsonObject: ...
    def task_params(self, ids: Ids) -> JsonObject: ...
    def headers(self, extensions: Sequence[str]) -> tuple[tuple[str, str], ...]: ...


class EventReaders(Protocol):
    """Parses the answers of workers. Malformed."""

    def read_result(self, result: Any, *, position: str | None = None) -> WorkerEvent:
        """The answer to a message, or one event of its stream."""

    def read_task(self, result: Any) -> WorkerEvent:
        """An answer that can only be a task."""


class Words(Protocol):
    """What the hub itself writes into a log."""

    AGENT: str
    """The role of the agent."""

    def text_part(self, text: str) -> JsonObject: ...
    def marked(self, kind: EventKind, document: JsonObject, state: TaskState | None) -> JsonObject:
        """The document with the members that tell its kind."""


class WorkerSide(NamedTuple):
    """A dialect as the hub speaks it with workers. The log of a task is in its worker's dialect."""

    calls: WorkerCalls
    events: EventReaders


class StreamView(Protocol):
    """The events of one reader's stream, in their order."""

    def write(self, content: Content) -> JsonObject:
        """Untranslatable if the dialect cannot express it."""


class View(Protocol):
    """A dialect in which a task looks otherwise than in its log: callers name their tasks, and what an event becomes depends
    on those before it.
    """

    def stream(self, alias: str) -> StreamView: ...
    def task(self, content: Content, alias: str, states: Sequence[Status]) -> JsonObject:
        """The whole task. `states`: all that it had. Untranslatable."""

    def event_name(self, kind: EventKind) -> str:
        """The SSE name of an event, at the address that has names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One version of A2A. `methods`: its names of JSON-RPC methods. `rest` None: it has no REST. `worker` None: no worker is
    called in it. `view` None: a task looks as in its log. `makes_tasks`: every answer is a task, never a bare message.
    `events_only`: clients that asked for a stream read nothing but its events, also an error. `push_media`: the media type of
    notifications. `token_is_bearer`: a push config's token is sent as bearer token too.
    """

    version: str
    methods: Mapping[str, Operation]
    shape: Shape
    words: Words
    requests: Requests
    answers: Answers
    write_card: Callable[[Profile], JsonObject]
    rules: DialectRules = field(default_factory=DialectRules)
    faults: DialectFaults = NO_FAULTS
    rest: RestForm | None = None
    worker: WorkerSide | None = None
    view: View | None = None
    makes_tasks: bool = False
    events_only: bool = False
    push_media: bytes = b"application/json"
    token_is_bearer: bool = False
