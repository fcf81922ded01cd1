"""Errors of calls to a hub. Each has a reason, a hint, and the code if the hub sent one: a program need not parse the message.

RolecallError
├── HubUnreachable  AuthError  Forbidden  TimedOut  StreamLost  HubBusy
├── InvalidRequest  TaskNotFound
├── RoleUnknown  SkillUnknown  NoLiveWorker  WorkerBusy  WorkerLost  BudgetSpent
├── TaskFailed  TaskRejected  InputRequired          raised by Reply.raise_for_state()
├── InvalidResult                                    raised by Reply.as_model()
├── LeaseError
│   └── LeaseUnknown  LeaseSuperseded  InstanceConflict
└── ConfigError
"""

from __future__ import annotations

from collections.abc import Mapping


class RolecallError(Exception):
    """The hub refused the call or could not be reached."""

    reason = "ERROR"
    hint = ""
    called = ""
    """The role whose call, in a task, failed with this."""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        hint: str | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or type(self).reason
        self.hint = type(self).hint if hint is None else hint
        self.facts = dict(facts or {})
        self._note_task()

    @property
    def task_id(self) -> str | None:
        """The task that the error is about. None: there is none, or nobody knows."""
        return self.facts.get("taskId") or None

    def about(self, task_id: str | None) -> None:
        """Name the task, if the error names none yet."""
        if task_id and self.task_id is None:
            self.facts["taskId"] = task_id
            self._note_task()

    def _note_task(self) -> None:
        """A traceback shows it, too."""
        if self.task_id is not None and self.task_id not in str(self.args[0]):
            self.add_note(f"It is about task {self.task_id}.")

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before another try, if the hub gave them."""
        try:
            return float(self.facts["retryAfter"])
        except (KeyError, ValueError):
            return None


class HubUnreachable(RolecallError):
    """No hub answered. Its reason tells why: NAME_UNKNOWN, CONNECT_TIMED_OUT, NO_ROUTE, PROXY_FAILED, NOT_HTTP; over TLS
    CERTIFICATE_EXPIRED, CERTIFICATE_NOT_YET_VALID, CERTIFICATE_NAME, CERTIFICATE_UNTRUSTED or CERTIFICATE_INVALID; NOT_TLS or
    TLS_REQUIRED if the port speaks the other; else TLS_FAILED. HUB_UNREACHABLE: nothing listens there, or the call was cut.
    """

    reason = "HUB_UNREACHABLE"
    hint = "Is the hub running? Start one with rolecall up or rolecall dev, or name another with --hub or ROLECALL_HUB."


class AuthError(RolecallError):
    """The hub does not know who calls: no token, or none that it accepts."""

    reason = "UNAUTHENTICATED"
    hint = "Set ROLECALL_TOKEN or ROLECALL_TOKEN_FILE to a token that this hub accepts. To check one: rolecall doctor"


class Forbidden(RolecallError):
    """The hub knows who calls, and does not allow it. Another token may be allowed to."""

    reason = "FORBIDDEN"


class TimedOut(RolecallError):
    """The call has waited as long as it may. The task continues."""

    reason = "TIMED_OUT"
    hint = "The task may still run: follow it with its task id, or pass a longer timeout."


class StreamLost(RolecallError):
    """The hub did not come back in time after a stream was cut."""

    reason = "STREAM_LOST"
    hint = "The task may still run: follow it with its task id."


class HubBusy(RolecallError):
    """The hub accepts no call at the moment: it drains or is overloaded."""

    reason = "OVERLOADED"
    hint = "Try again in a moment."


class InvalidRequest(RolecallError):
    """The hub or the worker refuses the request as it is: it would refuse a repeat too."""

    reason = "INVALID_REQUEST"


class TaskNotFound(RolecallError):
    """No such task, or another caller's."""

    reason = "TASK_NOT_FOUND"


class RoleUnknown(RolecallError):
    """No worker has ever enrolled under that role."""

    reason = "ROLE_UNKNOWN"
    hint = "List the live roles: rolecall roles ls."


class SkillUnknown(RolecallError):
    """No live worker of the role offers the skill. `facts["skills"]`: those that there are, by commas."""

    reason = "SKILL_UNKNOWN"
    hint = "See what each skill takes: rolecall agents show ROLE:INSTANCE."


class NoLiveWorker(RolecallError):
    """The role is known, and none of its workers is live, or not the one that the call names."""

    reason = "NO_LIVE_WORKER"


class WorkerBusy(RolecallError):
    """Every live worker of the role has as many calls as it takes."""

    reason = "WORKER_BUSY"
    hint = "Try again shortly, or start another worker."


class BudgetSpent(RolecallError):
    """A call in a task was refused, because a budget above it is spent. `facts` has the figures: `spentCost`, `budgetCost`,
    `currency`, `spentTokens`, `budgetTokens`, the `budgetTask` that was called with it, and the `chain` of roles.
    """

    reason = "BUDGET_SPENT"
    hint = "Go on with what there is, or begin anew with a larger budget."


class WorkerLost(RolecallError):
    """The worker was lost during the call. The call may have run."""

    reason = "WORKER_LOST"


class TaskFailed(RolecallError):
    """The task has failed."""

    reason = "TASK_FAILED"


class TaskRejected(RolecallError):
    """The worker has rejected the task."""

    reason = "TASK_REJECTED"


class InputRequired(RolecallError):
    """The task waits for its caller."""

    reason = "INPUT_REQUIRED"
    hint = "Answer it: send the next message with this task's id."


class InvalidResult(RolecallError):
    """The task has ended, and its result is not the model that the caller expects. `facts["paths"]`: the members, by commas."""

    reason = "INVALID_RESULT"
    hint = "Compare the model with the outputSchema on the role's card."


class LeaseError(RolecallError):
    reason = "LEASE_ERROR"


class LeaseUnknown(LeaseError):
    reason = "LEASE_UNKNOWN"


class LeaseSuperseded(LeaseError):
    reason = "LEASE_SUPERSEDED"


class InstanceConflict(LeaseError):
    reason = "CONFLICT"
    hint = "Choose another instance name, or stop the process that uses it."


class ConfigError(RolecallError):
    """A value in the environment or the arguments is invalid."""

    reason = "CONFIG"


_BY_REASON: dict[str, type[RolecallError]] = {
    kind.reason: kind
    for kind in (
        TaskNotFound,
        RoleUnknown,
        SkillUnknown,
        NoLiveWorker,
        WorkerBusy,
        BudgetSpent,
        WorkerLost,
        HubBusy,
        LeaseUnknown,
        LeaseSuperseded,
        InstanceConflict,
    )
} | {
    "WORKER_UNREACHABLE": WorkerLost,
    "WORKER_SILENT": WorkerLost,
    "HUB_RESTARTED": WorkerLost,
    "HUB_DRAINING": HubBusy,
    "OFFER_INVALID": InvalidRequest,
    "UNAUTHENTICATED": AuthError,
    "NO_TOKENS": AuthError,
    "FORBIDDEN": Forbidden,
}
_BY_CODE: dict[int, type[RolecallError]] = {-32001: TaskNotFound} | dict.fromkeys(
    (-32700, -32600, -32601, -32602, -32002, -32003, -32004, -32005, -32007, -32009), InvalidRequest
)
_BY_STATUS: dict[int, type[RolecallError]] = {401: AuthError, 403: Forbidden}


def error_for(
    message: str, *, code: int | None = None, reason: str = "", status: int = 200, facts: Mapping[str, str] | None = None
) -> RolecallError:
    """The error class is chosen by reason, then by code, then by HTTP status."""
    kind = _BY_REASON.get(reason)
    if kind is None:
        kind = _BY_STATUS.get(status)
    if kind is None and code is not None:
        kind = _BY_CODE.get(code)
    if kind is None and 400 <= status < 500:
        kind = InvalidRequest
    return (kind or RolecallError)(message, code=code, reason=reason or None, facts=facts)
