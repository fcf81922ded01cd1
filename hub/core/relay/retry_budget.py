"""Limits how long and how often a relay tries to reach its worker again. Time is an argument, in seconds."""

from __future__ import annotations

from rolecall.errors import (
    CredentialRefused,
    HubError,
    InvalidAnswer,
    Overloaded,
    StoreUnavailable,
    WorkerFull,
    WorkerLost,
    WorkerRefused,
    WorkerSilent,
    WorkerUnreachable,
)
from rolecall.model.value import Value

_PAUSE = 0.25
"""Seconds before another attempt."""
_REFUSALS_WITHIN = 1.0
_INVALID_ANSWERS = 3
_STILL_PAUSED = 6
_SHORTEST_STREAM = 1.0
"""Seconds. A stream that ends sooner and brings no event counts as not started."""
_UNCHANGED = 10
"""An unchanged task counts as running for this many times the allowed silence."""


class _Opened(Value, frozen=True):
    """What was known when a stream was opened."""

    at: float
    end: object
    last_sign: float
    unchanged_at: float
    delivers: bool


class RetryBudget:
    """Knows the worker's last sign of life. Its methods raise the reason to give the task up at the limit of their kind."""

    __slots__ = (
        "_invalid_answers",
        "_opened",
        "_refusals_in_a_row",
        "_refused_at",
        "_silence",
        "_still_paused",
        "_stream_ended",
        "_unchanged_at",
        "last_sign",
    )

    def __init__(self, silence: float, now: float) -> None:
        self._silence = silence
        self.last_sign = now
        """When the worker last sent something, or its task changed: to be set."""
        self._unchanged_at = now
        """When a report that the task is unfinished last counted as a sign of life."""
        self._opened: _Opened | None = None
        self._stream_ended = False
        """The worker has ended a whole answer, and its task had not ended."""
        self._refused_at = -_REFUSALS_WITHIN - 1
        self._invalid_answers = 0
        self._still_paused = 0
        self._refusals_in_a_row = 0
        """Attempts in a row for which the hub had no connection."""

    @property
    def alive_at(self) -> float:
        """The last sign of life."""
        return max(self.last_sign, self._unchanged_at)

    def unchanged(self, now: float, *, streams: bool) -> None:
        """The worker reports the task as unfinished. If it can stream and does not, this counts for a limited time only: agents
        whose handler crashed keep reporting it (decision 0003).
        """
        alive_for = self._silence * (0 if self._stream_ended else _UNCHANGED if streams else float("inf"))
        if now - self.last_sign < alive_for:
            self._unchanged_at = now

    def still_paused(self, worker: str) -> None:
        """The connection was cut after the caller's answer was sent. A task that stays paused did not get it. WorkerRefused."""
        self._still_paused += 1
        if self._still_paused >= _STILL_PAUSED:
            raise WorkerRefused(worker, "the connection was cut, and the task still waits for this answer")

    def opened(self, now: float, end: object, *, delivers: bool) -> None:
        """A stream is asked for. `end`: of the log. `delivers`: the stream is the answer to a message."""
        self._opened = _Opened(now, end, self.last_sign, self._unchanged_at, delivers)

    def closed(self, now: float, end: object, worker: str, *, streams: bool) -> float:
        """The worker ended the stream properly. The pause before the next attempt; none if the stream brought something.
        WorkerSilent.
        """
        opened, self._opened = self._opened, None
        assert opened is not None
        self._stream_ended = self._stream_ended or (opened.delivers and streams)
        if opened.end != end:
            return 0.0
        if now - opened.at < _SHORTEST_STREAM:  # it is no sign of life
            self.last_sign, self._unchanged_at = opened.last_sign, opened.unchanged_at
            self._check_silence(now, worker)
        return _PAUSE

    def failed(self, now: float, error: HubError, worker: str, *, durable: bool = False) -> float:
        """The pause before the next attempt. `durable`: a worker that is gone may come back with its tasks.
        CredentialRefused, WorkerLost, WorkerSilent, InvalidAnswer, Overloaded, WorkerFull.
        """
        self._refusals_in_a_row = self._refusals_in_a_row + 1 if isinstance(error, Overloaded | WorkerFull) else 0
        match error:
            case Overloaded() | WorkerFull():  # the worker was not asked, so it is not silent
                self.last_sign = now
                if self._refusals_in_a_row * _PAUSE > self._silence:
                    raise error
            case StoreUnavailable():
                self.last_sign = now  # a failing store is not silence of the worker
            case CredentialRefused():  # it runs, and may get another credential
                if now - self.alive_at > self._silence:
                    raise error
            case WorkerUnreachable():
                if not durable:
                    self._check_refusals(now, worker)
                self._check_silence(now, worker)
            case InvalidAnswer():
                self._check_silence(now, worker)
                # One invalid answer may come from a cut connection.
                self._invalid_answers += 1
                if self._invalid_answers >= _INVALID_ANSWERS:
                    raise error
            case _:
                self._check_silence(now, worker)
        return _PAUSE

    def _check_refusals(self, now: float, worker: str) -> None:
        """Two refusals within a second mean that nothing listens at that address."""
        before, self._refused_at = self._refused_at, now
        if now - before <= _REFUSALS_WITHIN:
            raise WorkerLost(f"{worker} is gone: its address refuses connections. What it had not sent is lost.")

    def _check_silence(self, now: float, worker: str) -> None:
        if now - self.alive_at > self._silence:
            raise WorkerSilent(f"{worker} gave no sign of life for {now - self.alive_at:.0f} s.")
