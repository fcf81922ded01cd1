"""What a relay does when something happens: a table of phases and triggers, and nothing else.

docs/explanation/relay.md shows the table, and a diagram of it; scripts/relay_diagram.py writes both.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, StrEnum, auto
from typing import NamedTuple


class Phase(StrEnum):
    CALLING = "calling"
    """The message is on its way to a worker, or was delivered, and nothing of its answer is in the log."""
    STREAMING = "streaming"
    """The answer has begun, and its stream is open."""
    REATTACHING = "reattaching"
    """The stream is cut: the relay waits, or asks for it again."""
    POLLING = "polling"
    """The worker does not replay: the relay asks for its task again and again."""
    RESTING = "resting"
    """The task waits for its caller."""
    CHECKING = "checking"
    """The task waits for its caller, and its worker is asked whether it goes on all the same."""
    ENDING = "ending"
    """The hub ends the task; its verdict is being written."""
    ENDED = "ended"
    """The log has its last event."""
    WITHDRAWN = "withdrawn"
    """Nothing ran, and the message was taken back; or another writer has the task."""


class Trigger(StrEnum):
    # from the worker
    RECEIVED = "received"
    """Events came."""
    CLOSED = "closed"
    """The worker ended its answer properly."""
    CUT = "cut"
    """The connection was cut."""
    INVALID = "invalid"
    """The answer is not A2A."""
    UNREACHABLE = "unreachable"
    DECLINED = "declined"
    """The worker was reached and provably did nothing."""
    FULL = "full"
    """The hub has as many connections open to the worker as it may. Nothing was sent."""
    NO_CONNECTION = "no connection"
    """The hub has no connection left for the workspace, whatever the worker. Nothing was sent."""
    FAULT = "fault"
    """The worker's own error."""
    SEEN = "task seen"
    """The answer to a cancellation brought the worker's task, and it has not ended."""
    SEEN_ENDED = "end seen"
    """A probe or a cancellation brought the worker's task, and it has ended."""
    # from the store
    LOGGED = "logged"
    """New events are in the log, and the task goes on."""
    UNCHANGED = "unchanged"
    """Nothing of what came was new."""
    PAUSED = "paused"
    """The log ends in a pause."""
    ENDED = "ended"
    """The log has its last event."""
    SHOWN = "shown"
    """The log has at least the task's opening."""
    ASSIGNED = "assigned"
    """A worker has the call in the store: the first one, or another."""
    TAKEN_BACK = "taken back"
    """The message is no longer in the store."""
    STORE_UNAVAILABLE = "store unavailable"
    NOT_STORED = "not stored"
    """The store is unavailable for what a caller wanted to see in the log."""
    FENCE_LOST = "fence lost"
    """Another writer has the task."""
    # from the hub
    ANSWERED = "answered"
    """The caller's answer is stored."""
    RETRY = "retry"
    """The pause before another attempt is over."""
    POLL = "poll"
    """The worker can only be polled."""
    CHECK = "check"
    """What the paused task waits for may have come another way, or its worker has canceled it."""
    REVEAL = "reveal"
    """A caller wants to see the task before its worker has answered."""
    DRAIN = "drain"
    """The hub shuts down: callers get the task as it stands."""
    CANCELED = "canceled"
    """The caller has canceled the task, and its worker does not object or does not answer."""
    GIVE_UP = "give up"
    """Silence, a full log, or no way back to the worker."""
    OVERDUE = "overdue"
    """The task has not been done in time."""
    LEASE_LOST = "lease lost"
    """The worker is gone, or another process has its name."""
    LOOK = "look"
    """A caller waits until everything before this has been acted on."""
    LET_GO = "let go"
    """The stream of a task that rests is no longer needed."""
    HUB_STOPS = "hub stops"


OF_THE_CALL = frozenset(
    {
        Trigger.RECEIVED,
        Trigger.CLOSED,
        Trigger.CUT,
        Trigger.INVALID,
        Trigger.UNREACHABLE,
        Trigger.DECLINED,
        Trigger.FULL,
        Trigger.NO_CONNECTION,
        Trigger.FAULT,
        Trigger.RETRY,
        Trigger.POLL,
    }
)
"""They mean nothing any more when the relay has hung up."""


class Effect(StrEnum):
    WRITE = auto()
    """Append what came to the log."""
    WRITE_MISSING = auto()
    """Append what the worker's task has and the log lacks."""
    SHOW = auto()
    """Append the opening of the task, if the log is empty."""
    BEGIN = auto()
    """Tell those who wait for the start that it is in the log."""
    FAIL_START = auto()
    """Tell those who wait for the start why it does not come."""
    REST = auto()
    """The worker is free. The relay is over if no stream is open."""
    DELIVER = auto()
    """Send the message to the worker."""
    SUSPECT = auto()
    """Tell the registry that the worker could not be reached."""
    MOVE = auto()
    """Choose another worker."""
    RETRY = auto()
    """Come back at once after the first cut, later after others, or find that it is hopeless."""
    COME_BACK = auto()
    """Attach to the stream again, deliver the message again, or poll."""
    ATTACH = auto()
    """Attach to the stream of a paused task, if the worker still has its lease."""
    POLL = auto()
    POLL_LATER = auto()
    NOTE_NEWS = auto()
    """The worker's task has changed: a sign of life."""
    NOTE_SAME = auto()
    """The worker's task has not changed: a sign of life for a while."""
    HANG_UP = auto()
    """End what is open towards the worker."""
    GIVE_UP = auto()
    """Take the message back if nothing ran, else write the verdict."""
    LOSE = auto()
    """Give up, since the worker lost the task."""
    CANCEL = auto()
    """Write that the task is canceled."""
    WRITE_LATER = auto()
    """Try the verdict again when the store may be back."""
    REPORT_END = auto()
    """The verdict is in the log: tell those who wait, and a worker that may still work."""
    DROP = auto()
    """Count what comes after the end."""
    FINISH = auto()
    """The relay is over."""


class Fact(Enum):
    """What a decision may depend on."""

    MOVABLE = "another worker may get the call"
    KNOWN = "the worker knows the task"
    FOLLOWABLE = "the worker knows the task, or would recognise the message"
    STREAM_OPEN = "a stream is open"
    DRAINING = "the hub shuts down"


class Step(NamedTuple):
    phase: Phase
    effects: tuple[Effect, ...] = ()


class Choice(NamedTuple):
    fact: Fact
    yes: Step
    no: Step


def step(phase: Phase, trigger: Trigger, holds: Callable[[Fact], bool]) -> Step:
    """The next phase, and what to do. Without an entry in the table nothing happens."""
    entry = TABLE[phase].get(trigger) or _NOTHING[phase]
    if isinstance(entry, Choice):
        return entry.yes if holds(entry.fact) else entry.no
    return entry


def _to(phase: Phase, *effects: Effect) -> Step:
    return Step(phase, effects)


_FENCED = _to(Phase.WITHDRAWN, Effect.HANG_UP, Effect.FAIL_START, Effect.FINISH)
_GIVEN_UP = _to(Phase.ENDING, Effect.HANG_UP, Effect.GIVE_UP)
_LOST = _to(Phase.ENDING, Effect.HANG_UP, Effect.LOSE)
_FROM_ANYWHERE: dict[Trigger, Step | Choice] = {
    Trigger.FENCE_LOST: _FENCED,
    Trigger.HUB_STOPS: _FENCED,
}
_WHILE_AT_WORK: dict[Trigger, Step | Choice] = {
    **_FROM_ANYWHERE,
    Trigger.GIVE_UP: _GIVEN_UP,
    Trigger.OVERDUE: _GIVEN_UP,
    Trigger.LEASE_LOST: _GIVEN_UP,
    Trigger.PAUSED: _to(Phase.RESTING, Effect.BEGIN, Effect.REST),
    Trigger.ENDED: _to(Phase.ENDED, Effect.BEGIN, Effect.REST),
}
_LEFT_PAUSED = _to(Phase.RESTING, Effect.HANG_UP, Effect.FINISH)
_NO_NEWS = (
    Trigger.CLOSED,
    Trigger.CUT,
    Trigger.INVALID,
    Trigger.UNREACHABLE,
    Trigger.DECLINED,
    Trigger.FULL,
    Trigger.NO_CONNECTION,
)
"""How an attempt to attach ends that has brought nothing."""
_FOLLOWED = _to(Phase.REATTACHING, Effect.HANG_UP, Effect.RETRY)
_AFTER_THE_STREAM: dict[Trigger, Step | Choice] = {
    Trigger.CLOSED: Choice(Fact.KNOWN, _FOLLOWED, _GIVEN_UP),
    Trigger.CUT: Choice(Fact.FOLLOWABLE, _FOLLOWED, _GIVEN_UP),
    Trigger.INVALID: Choice(Fact.KNOWN, _FOLLOWED, _GIVEN_UP),
    Trigger.STORE_UNAVAILABLE: Choice(Fact.FOLLOWABLE, _FOLLOWED, _GIVEN_UP),
    Trigger.FAULT: _GIVEN_UP,
}


def _shown_in(phase: Phase) -> dict[Trigger, Step | Choice]:
    return {
        Trigger.REVEAL: _to(phase, Effect.SHOW),
        Trigger.DRAIN: _to(phase, Effect.SHOW),
        Trigger.SHOWN: Choice(Fact.DRAINING, _to(phase, Effect.BEGIN), _to(phase)),
    }


TABLE: dict[Phase, dict[Trigger, Step | Choice]] = {
    Phase.CALLING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.CALLING, Effect.CANCEL),
        Trigger.RECEIVED: _to(Phase.CALLING, Effect.WRITE),
        Trigger.LOGGED: _to(Phase.STREAMING, Effect.BEGIN),
        **_AFTER_THE_STREAM,
        Trigger.UNREACHABLE: Choice(
            Fact.MOVABLE,
            _to(Phase.CALLING, Effect.SUSPECT, Effect.MOVE),
            _to(Phase.ENDING, Effect.SUSPECT, Effect.HANG_UP, Effect.GIVE_UP),
        ),
        Trigger.DECLINED: Choice(Fact.MOVABLE, _to(Phase.CALLING, Effect.MOVE), _GIVEN_UP),
        Trigger.FULL: Choice(Fact.MOVABLE, _to(Phase.CALLING, Effect.MOVE), _GIVEN_UP),
        Trigger.NO_CONNECTION: _GIVEN_UP,
        Trigger.ASSIGNED: _to(Phase.CALLING, Effect.DELIVER),
        Trigger.SEEN: _to(Phase.CALLING, Effect.WRITE_MISSING),
        Trigger.SEEN_ENDED: _to(Phase.CALLING, Effect.HANG_UP, Effect.WRITE_MISSING),
        **_shown_in(Phase.CALLING),
    },
    Phase.STREAMING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.STREAMING, Effect.CANCEL),
        Trigger.RECEIVED: _to(Phase.STREAMING, Effect.WRITE),
        **_AFTER_THE_STREAM,
        Trigger.SEEN: _to(Phase.STREAMING, Effect.WRITE_MISSING),
        Trigger.SEEN_ENDED: _to(Phase.STREAMING, Effect.HANG_UP, Effect.WRITE_MISSING),
    },
    Phase.REATTACHING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.REATTACHING, Effect.CANCEL),
        Trigger.RECEIVED: _to(Phase.REATTACHING, Effect.WRITE),
        Trigger.LOGGED: _to(Phase.STREAMING, Effect.BEGIN),
        Trigger.RETRY: _to(Phase.REATTACHING, Effect.COME_BACK),
        Trigger.POLL: _to(Phase.POLLING, Effect.POLL),
        Trigger.CLOSED: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.CUT: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.INVALID: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.UNREACHABLE: _to(Phase.REATTACHING, Effect.SUSPECT, Effect.RETRY),
        Trigger.FULL: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.NO_CONNECTION: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.STORE_UNAVAILABLE: _to(Phase.REATTACHING, Effect.HANG_UP, Effect.RETRY),
        Trigger.DECLINED: _GIVEN_UP,
        Trigger.FAULT: _LOST,
        Trigger.SEEN: _to(Phase.REATTACHING, Effect.WRITE_MISSING),
        Trigger.SEEN_ENDED: _to(Phase.REATTACHING, Effect.HANG_UP, Effect.WRITE_MISSING),
        **_shown_in(Phase.REATTACHING),
    },
    Phase.POLLING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.POLLING, Effect.CANCEL),
        Trigger.RECEIVED: _to(Phase.POLLING, Effect.WRITE),
        Trigger.LOGGED: _to(Phase.POLLING, Effect.BEGIN, Effect.NOTE_NEWS, Effect.POLL_LATER),
        Trigger.UNCHANGED: _to(Phase.POLLING, Effect.NOTE_SAME, Effect.POLL_LATER),
        Trigger.CUT: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.INVALID: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.UNREACHABLE: _to(Phase.REATTACHING, Effect.SUSPECT, Effect.RETRY),
        Trigger.FULL: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.NO_CONNECTION: _to(Phase.REATTACHING, Effect.RETRY),
        Trigger.STORE_UNAVAILABLE: _to(Phase.REATTACHING, Effect.HANG_UP, Effect.RETRY),
        Trigger.DECLINED: _GIVEN_UP,
        Trigger.FAULT: _LOST,
        # The next poll would bring the same.
        Trigger.SEEN_ENDED: _to(Phase.POLLING, Effect.HANG_UP, Effect.WRITE_MISSING),
        **_shown_in(Phase.POLLING),
    },
    Phase.RESTING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.RESTING, Effect.CANCEL),
        Trigger.GIVE_UP: _to(Phase.RESTING),
        Trigger.ANSWERED: _to(Phase.CALLING, Effect.DELIVER),
        # A worker that waits for credentials may get them elsewhere, and go on by itself.
        Trigger.RECEIVED: _to(Phase.RESTING, Effect.WRITE),
        Trigger.LOGGED: Choice(Fact.STREAM_OPEN, _to(Phase.STREAMING), _to(Phase.REATTACHING, Effect.COME_BACK)),
        Trigger.CLOSED: _to(Phase.RESTING, Effect.FINISH),
        Trigger.CUT: _to(Phase.RESTING, Effect.FINISH),
        Trigger.INVALID: _to(Phase.RESTING, Effect.FINISH),
        Trigger.FAULT: _GIVEN_UP,
        Trigger.STORE_UNAVAILABLE: Choice(
            Fact.STREAM_OPEN, _to(Phase.REATTACHING, Effect.HANG_UP, Effect.RETRY), _to(Phase.RESTING, Effect.FINISH)
        ),
        Trigger.SEEN: _to(Phase.RESTING, Effect.WRITE_MISSING),
        Trigger.SEEN_ENDED: _to(Phase.RESTING, Effect.HANG_UP, Effect.WRITE_MISSING),
        Trigger.CHECK: Choice(Fact.STREAM_OPEN, _to(Phase.RESTING), _to(Phase.CHECKING, Effect.ATTACH)),
        Trigger.LET_GO: _LEFT_PAUSED,
    },
    Phase.CHECKING: {
        **_WHILE_AT_WORK,
        Trigger.CANCELED: _to(Phase.CHECKING, Effect.CANCEL),
        Trigger.RECEIVED: _to(Phase.CHECKING, Effect.WRITE),
        Trigger.LOGGED: _to(Phase.STREAMING, Effect.BEGIN),
        **dict.fromkeys(_NO_NEWS, _to(Phase.RESTING, Effect.FINISH)),
        Trigger.FAULT: _LOST,
        Trigger.STORE_UNAVAILABLE: _LEFT_PAUSED,
        Trigger.SEEN: _to(Phase.CHECKING, Effect.WRITE_MISSING),
        Trigger.SEEN_ENDED: _to(Phase.CHECKING, Effect.HANG_UP, Effect.WRITE_MISSING),
        Trigger.LET_GO: _LEFT_PAUSED,
    },
    Phase.ENDING: {
        **_FROM_ANYWHERE,
        Trigger.ENDED: _to(Phase.ENDED, Effect.REPORT_END, Effect.FINISH),
        Trigger.TAKEN_BACK: _to(Phase.WITHDRAWN, Effect.FAIL_START, Effect.FINISH),
        Trigger.STORE_UNAVAILABLE: _to(Phase.ENDING, Effect.FAIL_START, Effect.WRITE_LATER),
        Trigger.RETRY: _to(Phase.ENDING, Effect.GIVE_UP),
    },
    Phase.ENDED: {
        Trigger.RECEIVED: _to(Phase.ENDED, Effect.DROP),
        Trigger.CLOSED: _to(Phase.ENDED, Effect.FINISH),
        Trigger.CUT: _to(Phase.ENDED, Effect.FINISH),
        Trigger.INVALID: _to(Phase.ENDED, Effect.FINISH),
        Trigger.FAULT: _to(Phase.ENDED, Effect.FINISH),
        Trigger.LET_GO: _to(Phase.ENDED, Effect.HANG_UP, Effect.FINISH),
        Trigger.HUB_STOPS: _to(Phase.ENDED, Effect.HANG_UP, Effect.FINISH),
    },
    Phase.WITHDRAWN: {},
}
_NOTHING = {phase: Step(phase) for phase in Phase}
