"""Every seam of the hub. The docstrings are the contracts: who owns, in which order, how concurrent, which errors.

Everything runs on one event loop's thread unless a line says otherwise. Durations cross a port, instants never: an engine's
own clock decides what has expired. `Caller` comes first wherever somebody's data is read; what belongs to another workspace
or caller is not found, exactly like what does not exist.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import NamedTuple, Protocol

from rolecall.errors import HubError
from rolecall.model.a2a import Event, Ids, Logged, TaskState, WorkerEvent
from rolecall.model.command import Send, TaskQuery
from rolecall.model.ids import START, Caller, Cursor, TaskId, WorkerId
from rolecall.model.principal import Principal
from rolecall.model.push import DeadPage, PushConfig, SealedConfig
from rolecall.model.task import Conversation, TaskPage, TaskRow, Turn
from rolecall.model.value import Value
from rolecall.model.worker import Beat, Health, LeaseProof, Offer, Registration, RegistryChange


class Clock(Protocol):
    """Time, so that tests can move it."""

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...


# --- state


class RegistryFeed(Protocol):
    """Changes as they happen. An empty batch when none came for `idle`; ends after `stop`."""

    def __aiter__(self) -> RegistryFeed: ...
    async def __anext__(self) -> Sequence[RegistryChange]: ...
    def stop(self) -> None: ...


class Registry(Protocol):
    """Leases with a TTL, in memory for reading and in the store for surviving.

    `live`, `get` and `roles` are plain calls, cheap enough for every request, and never return an expired lease. Their
    `Registration`s are shared objects: only the registry changes health and lease, only the hub changes `in_flight`.
    """

    async def enrol(
        self, workspace: str, offer: Offer, *, owner: str = "", boot: str, ttl: timedelta, supersede: bool = False
    ) -> Registration:
        """Take or renew a lease; durable on return. The same `boot` keeps its epoch and secret, so repeating is harmless, and
        a changed offer is taken over. Another boot gets the next epoch (epochs of a name never repeat, not even after
        expiry) if the old lease has ended, names the same URL, or `supersede` is set; else InstanceConflict.
        A live lease of another `owner` is never taken over. A zero ttl never expires.
        """

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, ttl: timedelta | None = None
    ) -> Registration:
        """Renew for `ttl`, or for the time given at enrolment. Clears suspicion. LeaseUnknown (never seen, expired,
        withdrawn), LeaseSuperseded (older epoch or other secret). May become durable up to a second later.
        """

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        """End the lease. Errors as for `beat`; an old epoch changes nothing."""

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        """Set health. No effect if that epoch is not live, or has this health already. DRAINING is left by enrolling only."""

    def live(self, workspace: str, role: str | None = None) -> Sequence[Registration]:
        """All live leases, or a role's. The sequence must not be kept across an await."""

    def get(self, workspace: str, worker: WorkerId) -> Registration | None: ...

    def roles(self, workspace: str) -> Sequence[str]:
        """Roles with at least one live lease, sorted."""

    def everyone(self) -> Iterator[Sequence[Registration]]:
        """All live leases of all workspaces, role by role. A role's sequence is the same object for as long as the same leases
        are live and none of them is to end sooner than all of them were: who has looked at it need not look again.
        """

    def revision(self) -> int:
        """Rises with each change that the feed tells of."""

    def __len__(self) -> int:
        """How many leases are held: those that are just being taken, or have expired and are not swept yet, included."""

    def held_by(self, owner: Caller) -> int:
        """How many of them one principal enrolled. Not by looking through them all."""

    def hold(self, workspace: str, worker: WorkerId, epoch: int, lasts: timedelta) -> None:
        """Let a lease run for at least that long from now, though nobody has renewed it. No effect if it is not live."""

    def expires_in(self, registration: Registration) -> timedelta | None:
        """None: never."""

    def last_of(self, workspace: str, role: str) -> RegistryChange | None:
        """The newest change of a role, live or not: what to say when nobody serves it. None: never seen."""

    async def sweep(self) -> Sequence[Registration]:
        """End what has expired, write it to the feed, return it. Called about once a second."""

    def changes(self, workspace: str | None, *, after: int | None, idle: timedelta) -> RegistryFeed:
        """A workspace's changes with a revision above `after`, stored then live, no gap, no repeat; None: from now on.
        `workspace` None: everybody's. The newest 10,000 are kept; an `after` from before those gets what is left of them.
        """


class Subscription(Protocol):
    """A reader of one task's log: batches of stored, then live events, in order, no gap, no repeat.

    A batch holds what was there already (at most a page), so that it can go out in one write. An empty batch means that
    nothing came for `idle`. Ends after an event that `ends`, and after `stop`. One reader per subscription.
    """

    def __aiter__(self) -> Subscription: ...
    async def __anext__(self) -> Sequence[Logged]: ...
    def stop(self) -> None: ...


class LogEntry(Value, frozen=True):
    """What one append adds. `ids` where the worker's ids or the context have just become known."""

    events: Sequence[Event]
    position: str | None = None
    ids: Ids | None = None


class EventLog(Protocol):
    """The truth about every task, and the only way to read one live."""

    async def append(self, task: TaskId, entry: LogEntry, *, after: Cursor) -> Cursor:
        """Add events behind `after`; with them, in one transaction, go the worker's position, the ids, and the state that
        the events leave the task in. Durable when it returns, and only then visible to anybody. LogMoved if the log does
        not end at `after`, or has ended; StoreUnavailable. Returns the new end.
        """

    async def read(self, task: TaskId, *, after: Cursor = START, upto: Cursor | None = None) -> Sequence[Logged]:
        """Stored events behind `after`, up to and with `upto`."""

    def follow(self, task: TaskId, *, after: Cursor, idle: timedelta) -> Subscription:
        """Wake-ups are hints: losing one may cost time, never an event. A slow reader lags in storage, not in memory."""


class TaskStore(Protocol):
    """A row per task. It is never older than the task's log."""

    async def admit(self, row: TaskRow, turn: Turn, *, key: str | None = None, push: SealedConfig | None = None) -> None:
        """A new task with its first message, and the receiver that came with it; durable on return. `key` is the caller's
        own name for the call, and no two tasks of a caller may have the same. StoreUnavailable, also for a taken key.
        """

    async def keyed(self, caller: Caller, key: str) -> TaskId | None:
        """The caller's task with that key, a bare message included."""

    async def add_turn(self, task: TaskId, turn: Turn) -> None:
        """A further message of the caller; durable on return. It changes the task's `updated`, unless the task has ended."""

    async def drop_turn(self, task: TaskId, turn: Turn) -> None:
        """Take back that message, of which the caller was told that it was refused; durable on return. No effect unless it is
        the task's last, by its `after` and its id, and never on the one that was admitted.
        """

    async def assign(self, task: TaskId, worker: WorkerId, epoch: int, log_dialect: str) -> None:
        """The task's call goes to this worker from now on, in that dialect; durable on return."""

    async def discard(self, task: TaskId) -> None:
        """Remove a task that no worker heard of and no caller was told of."""

    async def get(self, caller: Caller, task: TaskId) -> TaskRow:
        """TaskNotFound: unknown, somebody else's, or one that turned out to be a bare message."""

    async def turns(self, task: TaskId) -> Sequence[Turn]:
        """In the order they were said; the first is the one that was admitted."""

    async def page(self, caller: Caller, query: TaskQuery) -> TaskPage:
        """Newest change first."""

    async def conversation(self, caller: Caller, context: str, role: str | None) -> Conversation | None:
        """The holder of that context's newest task, in that role where one is given."""

    async def paused(self, caller: Caller, context: str, role: str | None) -> Sequence[TaskId]:
        """The caller's tasks in that context that wait for input."""

    async def recent(self, *, ended_within: timedelta) -> Sequence[TaskRow]:
        """Every caller's tasks that have not ended, and those that ended within that time, bare messages included: what a
        starting hub has to settle, and what it has to recognise.
        """

    async def forget(self, *, ended_for: timedelta, paused_for: timedelta) -> int:
        """Drop tasks, with turns and events, that ended longer ago, or have waited longer for an answer. A bounded piece
        per call; returns how many.
        """


class DeliveryClaim(NamedTuple):
    """The right to deliver, in order, what one receiver lacks: the events behind `sent`, up to `last`. `only`: a dead letter
    on its way once more. `failures` in a row, the first of them `failing_for` ago; something is owed since `waiting_for`.
    """

    caller: Caller
    config: SealedConfig
    only: bool
    sent: Cursor
    last: Cursor
    failures: int
    failing_for: timedelta
    waiting_for: timedelta
    fence: int


class Pushes(Protocol):
    """Push configs, and what their receivers are owed. The log is the outbox: a receiver is owed the events behind its
    cursor, so that an append and the obligation to deliver it are one write. Durable on return. TaskNotFound: unknown,
    somebody else's, or a bare message. A task is not forgotten while something of it is owed, or has lately died.
    """

    async def set(self, caller: Caller, config: SealedConfig, *, most: int) -> None:
        """A new config gets what follows; of a task that has ended, its last event. One that replaces another of its id
        takes over what that was owed, due at once. InvalidParams if the task would have more than `most`.
        """

    async def get(self, caller: Caller, task: TaskId, config: str) -> SealedConfig:
        """PushConfigNotFound."""

    async def list(self, caller: Caller, task: TaskId) -> Sequence[SealedConfig]:
        """In the order in which they were first set."""

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        """With what it is owed, and its dead letters. Deleting what is not there is no error."""

    def on_due(self, wake: Callable[[], None]) -> None:
        """`wake` is called on the loop when something may have become due: a hint. What was postponed comes without one."""

    async def claim(self, most: int, lease: timedelta, *, at_once: int, busy: Mapping[str, int]) -> Sequence[DeliveryClaim]:
        """What is due and held by nobody, up to `most`, host by host in turn, and of one host no more than `at_once` less
        what `busy` says. Held for `lease`: one holder at a time. A holder that died lets go when its lease ends.
        """

    async def delivered(self, claim: DeliveryClaim, upto: Cursor, *, hold: timedelta) -> Cursor | None:
        """The receiver has the events up to `upto`. Returns the last one it is owed now, and holds the claim for `hold`
        from now; None, and the claim is let go: nothing is owed, `hold` is zero, or somebody else has the claim.
        """

    async def bury(self, claim: DeliveryClaim, cursor: Cursor, reason: str, *, hold: timedelta) -> Cursor | None:
        """Give up that event: a dead letter. As `delivered`, but the time of the first failure stays until one succeeds."""

    async def postpone(self, claim: DeliveryClaim, retry_in: timedelta) -> None:
        """It failed: let go, due again after that time. No effect, as with `release`, if somebody else has the claim."""

    async def release(self, claim: DeliveryClaim) -> None: ...

    async def dead_letters(self, caller: Caller, *, limit: int, before: str | None = None, whole: bool = False) -> DeadPage:
        """Newest first; `whole`: those of all callers in his workspace. A letter stays listed until it is delivered."""

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        """Owe that event again, beside what follows in order. The task may be anybody's in the caller's workspace.
        DeadLetterNotFound.
        """


class Engine(Protocol):
    """State. An async context manager that opens all or nothing; leaving it flushes what beats had not yet written."""

    @property
    def registry(self) -> Registry: ...
    @property
    def tasks(self) -> TaskStore: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def pushes(self) -> Pushes: ...

    async def __aenter__(self) -> Engine: ...
    async def __aexit__(self, *exc: object) -> None: ...

    async def ping(self) -> None:
        """StoreUnavailable if the store would not take a write."""


# --- outside


class Dispatch(Value, frozen=True):
    """One message on its way to a worker. `ids.worker_task` is set where the message continues a task.
    `references` translates the task ids that the message refers to into the worker's.
    """

    send: Send
    ids: Ids
    references: dict[str, str]


class Attach(Value, frozen=True):
    """Come back to a task's stream. With `position` the worker replays exactly what follows it."""

    ids: Ids
    position: str | None
    trace: str | None = None


class Forwarder(Protocol):
    """Calls workers. Nothing here is ever repeated by itself.

    Every method raises WorkerUnreachable (nothing was sent), WorkerRefused (said that it did nothing), WorkerBroke (was cut
    or timed out after the call had left), InvalidAnswer, WorkerFault (the worker's own JSON-RPC error).
    """

    def deliver(self, offer: Offer, dispatch: Dispatch) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Send a message; entering returns once the worker's answer has begun. Streams if the worker can, else asks it not
        to block and yields its one answer. Batches hold what arrived together; an empty one is a sign of life. The iterator
        ends where the worker ended its answer properly; a cut raises WorkerBroke. While nobody iterates, the worker is
        held back.
        """

    def attach(self, offer: Offer, attach: Attach) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        """Come back to a stream. WorkerFault if the worker does not know the task."""

    async def fetch(self, offer: Offer, ids: Ids) -> WorkerEvent:
        """The worker's task as of now."""

    async def cancel(self, offer: Offer, ids: Ids) -> WorkerEvent: ...

    async def probe(self, offer: Offer) -> bool:
        """Does anything accept connections at that address?"""


class WebhookRequest(NamedTuple):
    """One event on its way to one receiver. Each attempt has the same `id`."""

    id: str
    config: PushConfig
    body: bytes


class WebhookResult(NamedTuple):
    """What a receiver answered: an HTTP status, or 0 where there was none, and why."""

    status: int
    why: str
    retry_after: timedelta | None = None


class Webhooks(Protocol):
    """Sends to the receivers of push notifications. Nothing here is ever repeated by itself."""

    async def check(self, url: str) -> str:
        """The receiver's host, or WebhookRejected. Resolves its name, connects to nothing."""

    async def post(self, letter: WebhookRequest) -> WebhookResult:
        """Judges the address once more, and connects to the one that it judged. Never raises for what the receiver does."""


class Tokens(Protocol):
    """Who a token belongs to. Plain calls, cheap enough for every request."""

    @property
    def empty(self) -> bool:
        """There are none, so nobody can be asked for one."""

    def find(self, token: str) -> Principal | None:
        """None: unknown, revoked, expired. Takes the same time for each."""


class Vault(Protocol):
    """Keeps secrets unreadable where they are stored."""

    def seal(self, secret: bytes) -> bytes: ...
    def open(self, sealed: bytes) -> bytes:
        """SecretUnreadable: sealed under another key, or changed since."""


class Codec(Protocol):
    """Turns what workers say into what the log holds, and logs into tasks. Pure; never raises on a Heard.

    All events of one task are in one dialect, `ids.spoken`. InvalidParams where a caller's message cannot be said in it.
    """

    def record(self, send: Send, *, after: Cursor) -> Turn:
        """The caller's message as it is stored before anybody hears of it."""

    def recall(self, turn: Turn, row: TaskRow) -> Send:
        """The message again, as `record` got it; for a hub that has to settle what an earlier one left."""

    def begin(self, worker_event: WorkerEvent, ids: Ids, turn: Turn) -> Sequence[Event]:
        """The first thing heard of a task. The first event is a Task that opens with the caller's message, or the only
        event is a bare message.
        """

    def adopt(self, worker_event: WorkerEvent, ids: Ids) -> Event:
        """A later event, under the hub's ids. Not for Tasks: those are compared, see `missing`."""

    def missing(
        self, worker_event: WorkerEvent, ids: Ids, turns: Sequence[Turn], log: Sequence[Logged], *, gap: bool
    ) -> Sequence[Event]:
        """What the worker's Task has that the fold of the log lacks, by position, never by content. `gap` marks that events
        in between may have been lost.
        """

    def opening(self, ids: Ids, turn: Turn) -> Event:
        """A submitted Task, for a worker that has not spoken yet."""

    def resumed(self, ids: Ids) -> Event:
        """A paused task works again, said for a worker that goes on without saying so."""

    def verdict(self, ids: Ids, state: TaskState, error: HubError) -> Event:
        """A final status that the hub itself gives, with the reason in its metadata."""

    def snapshot(
        self,
        turns: Sequence[Turn],
        log: Sequence[Logged],
        *,
        dialect: str,
        history_length: int | None,
        alias: str = "",
        artifacts: bool = True,
    ) -> bytes:
        """The Task as of the end of a whole `log`. InvalidAnswer: it cannot be said so. `alias`: its caller's name for it."""

    def outline(self, row: TaskRow, dialect: str) -> bytes:
        """The Task without its content, marked so: for a list that cannot say the rest of it in that dialect."""

    def spelled(self, event: Event, dialect: str) -> bytes:
        """A bare message in that dialect. InvalidAnswer where it cannot be said in it."""

    def notice(self, row: TaskRow, turns: Sequence[Turn], log: Sequence[Logged], *, dialect: str) -> bytes:
        """What a webhook gets after the last event of `log`, in its own dialect. May be called on any thread."""
