"""Gives no new calls to a worker that fails each of them while others of its role do not, or that does not let the hub call
it, and tries it again later.

Routing prefers the least busy worker, and one that fails at once is never busy. What is known of a worker's calls is in its
`Registration`, so it ends with the lease, and with the hub: after a restart every worker gets calls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hub.core.supervisor import Supervisor
from hub.ports.clock import Clock
from hub.ports.state.registry import Registry
from rolecall.errors import HubError, InvalidAnswer, StoreUnavailable, WorkerBroke, WorkerFault, WorkerLost, WorkerSilent
from rolecall.model.a2a import TaskState
from rolecall.model.ids import TaskId
from rolecall.model.worker import FailedCalls, Health, Registration

log = logging.getLogger(__name__)

FAILURES = 5
"""So many calls in a row."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0
_LOOK_EVERY = 1.0
"""Seconds between two looks at the other workers of a role, which cost more the more there are."""
_NOT_COUNTED = frozenset({TaskState.CANCELED, TaskState.REJECTED})
"""The caller may be the reason."""


class FailingWorkers:
    def __init__(self, registry: Registry, clock: Clock, supervisor: Supervisor) -> None:
        self._registry = registry
        self._clock = clock
        self._supervisor = supervisor

    # --- what becomes of calls

    def call_ended(
        self, registration: Registration, task: TaskId, state: TaskState, error: HubError | None, *, rests: bool
    ) -> None:
        """The worker is done with a message. `rests`: so is the task. `error`: why the hub gave it up. Constant time, unless
        many calls fail.
        """
        failure = _failure_of(error, state)
        if failure is not None:
            self._fail(registration, task, failure)
        elif rests and error is None and state not in _NOT_COUNTED:
            registration.last_success = self._clock.monotonic()
            if registration.failed_calls is not None:
                self._recover(registration, registration.failed_calls)
        elif registration.failed_calls is not None and registration.failed_calls.trial == task:
            registration.failed_calls.trial = None

    def locked_out(self, registration: Registration, task: TaskId, why: str) -> None:
        """The worker does not let the hub call it. It would refuse every call, so the others of its role are not compared."""
        self._fail(registration, task, why, certain=True)

    def _recover(self, registration: Registration, calls: FailedCalls) -> None:
        registration.failed_calls = None
        if calls.pause:
            self._supervisor.run_once(f"recover {registration.worker}", self._mark_ready(registration))

    def _fail(self, registration: Registration, task: TaskId, failure: str, *, certain: bool = False) -> None:
        now = self._clock.monotonic()
        calls = registration.failed_calls
        if calls is None:
            calls = registration.failed_calls = FailedCalls(since=now)
        calls.count += 1
        if calls.pause and registration.health is Health.READY and now >= calls.due:
            calls.pause = 0.0  # its state could not be stored, or an enrolment has ended its drain
        if calls.pause:
            # Calls that had begun before, and pinned ones, do not make its pause longer.
            if calls.trial == task:
                calls.trial = None
                calls.pause = min(2 * calls.pause, LONGEST_PAUSE)
                calls.due = now + calls.pause
        elif certain or (calls.count >= FAILURES and now >= calls.due):
            if certain or self._others_succeed(registration, calls.since):
                calls.pause, calls.due = FIRST_PAUSE, now + FIRST_PAUSE
                reason = failure if certain else f"{calls.count} calls in a row failed, the last one: {failure}"
                self._supervisor.run_once(f"fail {registration.worker}", self._mark_failing(registration, reason))
            else:
                calls.due = now + _LOOK_EVERY

    def _others_succeed(self, registration: Registration, since: float) -> bool:
        """A call to another worker of the role has succeeded since then, and this one would not be of the larger half.
        If all workers fail alike, the fault is not theirs.
        """
        live = self._registry.live(registration.workspace, registration.worker.role)
        serving = [other for other in live if other.health is not Health.DRAINING]
        without = sum(_gets_no_calls(other) for other in serving)
        return 2 * (without + 1) <= len(serving) and any(
            other.last_success > since for other in serving if other is not registration
        )

    async def _mark_failing(self, registration: Registration, reason: str) -> None:
        try:
            await self._mark(registration, Health.FAILING, reason)
        except StoreUnavailable:  # a failure after the pause decides again
            log.info("not marked", extra={"event": "failing_not_stored", "worker": str(registration.worker)})

    async def _mark_ready(self, registration: Registration) -> None:
        try:
            await self._mark(registration, Health.READY, "")
        except StoreUnavailable:  # the next trial call decides again
            due = self._clock.monotonic() + FIRST_PAUSE
            registration.failed_calls = FailedCalls(since=due, pause=FIRST_PAUSE, due=due)

    async def _mark(self, registration: Registration, health: Health, reason: str) -> None:
        await self._registry.mark(registration.workspace, registration.worker, registration.epoch, health, reason)

    # --- trial calls

    def next_trial(self, failing: Sequence[Registration]) -> Registration | None:
        """The one that gets the present call, because its pause is over and no other trial call is at it. The next one is a
        pause later, whatever becomes of this call.
        """
        now = self._clock.monotonic()
        for registration in failing:
            calls = registration.failed_calls
            if calls is not None and calls.pause and calls.trial is None and now >= calls.due and not registration.full:
                calls.due = now + calls.pause
                return registration
        return None

    def trial_began(self, registration: Registration, task: TaskId) -> None:
        if registration.failed_calls is not None:
            registration.failed_calls.trial = task


def _gets_no_calls(registration: Registration) -> bool:
    return registration.failed_calls is not None and registration.failed_calls.pause > 0


def _failure_of(error: HubError | None, state: TaskState) -> str | None:
    """Why the call failed, without the worker's own words. None: it did not, or its caller may be the reason."""
    match error:
        case None:
            return "its task failed" if state is TaskState.FAILED else None
        case WorkerFault():
            return f"it answered with error {error.code}" if not error.may_be_the_callers else None
        case InvalidAnswer() | WorkerBroke():
            return error.why
        case WorkerLost():
            return "it lost the task"
        case WorkerSilent():
            return "it was silent"
    return None
