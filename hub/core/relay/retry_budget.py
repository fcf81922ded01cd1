"""How long a relay keeps trying to get back to its worker, and what makes it stop. Time comes in."""

from __future__ import annotations

from rolecall.errors import InvalidAnswer, WorkerLost, WorkerRefused, WorkerSilent

_REFUSALS_WITHIN = 1.0
_MOST_NONSENSE = 3
_ASKED_AGAIN = 6


class RetryBudget:
    """Every method tells what happened, and raises when that was once too often. `silence` in seconds."""

    def __init__(self, silence: float) -> None:
        self._silence = silence
        self._refusals: list[float] = []
        self._nonsense = 0
        self._asked_again = 0

    def refused(self, worker: str, now: float, *, alive_at: float) -> None:
        """Twice within a second, and nothing listens there any more."""
        self._refusals = [at for at in self._refusals if now - at <= _REFUSALS_WITHIN] + [now]
        if len(self._refusals) > 1:
            raise WorkerLost(f"{worker} is gone: its address refuses connections. What it had not yet sent is gone.")
        self.silent(worker, now - alive_at)

    def silent(self, worker: str, silent_for: float) -> None:
        if silent_for > self._silence:
            raise WorkerSilent(f"{worker} gave no sign of life for {silent_for:.0f} s.")

    def nonsense(self, error: InvalidAnswer) -> None:
        """Once may be a cut in disguise; again and again it is what this worker has to say."""
        self._nonsense += 1
        if self._nonsense >= _MOST_NONSENSE:
            raise error

    def still_asks(self, worker: str) -> None:
        """An answer whose line was cut, to a worker that goes on asking, did not get there."""
        self._asked_again += 1
        if self._asked_again >= _ASKED_AGAIN:
            raise WorkerRefused(worker, "the answer was cut off, and the task still asks for it")
