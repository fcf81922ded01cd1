"""Limits how long and how often a relay tries to reach its worker again. Time is an argument."""

from __future__ import annotations

from rolecall.errors import InvalidAnswer, WorkerLost, WorkerRefused, WorkerSilent

_REFUSALS_WITHIN = 1.0
_INVALID_ANSWERS = 3
_STILL_PAUSED = 6


class RetryBudget:
    """Each method records one kind of failure, and raises at the limit of that kind. `silence` in seconds."""

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._refusals: list[float] = []
        self._invalid_answers = 0
        self._still_paused = 0

    def refused(self, worker: str, now: float, *, alive_at: float) -> None:
        """Two refusals within a second mean that nothing listens at that address. WorkerLost, WorkerSilent."""
        self._refusals = [at for at in self._refusals if now - at <= _REFUSALS_WITHIN] + [now]
        if len(self._refusals) > 1:
            raise WorkerLost(f"{worker} is gone: its address refuses connections. What it had not sent is lost.")
        self.silent(worker, now - alive_at)

    def silent(self, worker: str, silent_for: float) -> None:
        if silent_for > self._silence:
            raise WorkerSilent(f"{worker} gave no sign of life for {silent_for:.0f} s.")

    def invalid_answer(self, error: InvalidAnswer) -> None:
        """One invalid answer may come from a cut connection; the third one raises it."""
        self._invalid_answers += 1
        if self._invalid_answers >= _INVALID_ANSWERS:
            raise error

    def still_paused(self, worker: str) -> None:
        """The connection was cut after the caller's answer was sent. A task that stays paused did not get it. WorkerRefused."""
        self._still_paused += 1
        if self._still_paused >= _STILL_PAUSED:
            raise WorkerRefused(worker, "the connection was cut, and the task still waits for this answer")
