"""The one table of errors on the wire: code, HTTP status and reason.

Codes -32700, -32600 to -32603 and -32001 to -32009 have their specified meaning and no other. The hub's own errors have
-32000, and `reason` in their data distinguishes them. The HTTP status is for our own APIs and for REST; JSON-RPC errors are
sent with 200, because common clients drop the body of anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rolecall import errors
from rolecall.errors import HubError
from rolecall.model.a2a import JsonObject

DOMAIN = "rolecall"


class Fault(NamedTuple):
    code: int
    status: int
    reason: str
    message: str
    data: list[JsonObject] | None


class Row(NamedTuple):
    code: int
    status: int
    reason: str


class DialectFaults(NamedTuple):
    """What a dialect has otherwise. `rows`: errors with another code. `lowest`: of its codes. `explained`: A2A's own errors say
    their reason in their data.
    """

    rows: Mapping[type[BaseException], Row] = MappingProxyType({})
    lowest: int = -32007
    explained: bool = False


NO_FAULTS = DialectFaults()
"""Where the dialect is unknown, or has nothing otherwise."""
TABLE: dict[type[HubError], Row] = {
    errors.ParseError: Row(-32700, 400, "PARSE_ERROR"),
    errors.InvalidRequest: Row(-32600, 400, "INVALID_REQUEST"),
    errors.TooDeep: Row(-32600, 400, "TOO_DEEP"),
    errors.MethodNotFound: Row(-32601, 404, "METHOD_NOT_FOUND"),
    errors.InvalidParams: Row(-32602, 400, "INVALID_PARAMS"),
    errors.BodyTooLarge: Row(-32600, 413, "BODY_TOO_LARGE"),
    errors.FileTooLarge: Row(-32600, 413, "FILE_TOO_LARGE"),
    errors.BodyTooSlow: Row(-32600, 408, "BODY_TOO_SLOW"),
    errors.MediaTypeNotSupported: Row(-32005, 415, "CONTENT_TYPE_NOT_SUPPORTED"),
    errors.UnsupportedOperation: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
    errors.PushNotSupported: Row(-32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    errors.NoFiles: Row(-32004, 403, "FILES_OFF"),
    errors.VersionNotSupported: Row(-32009, 400, "VERSION_NOT_SUPPORTED"),
    errors.ExtendedCardNotConfigured: Row(-32007, 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    errors.KeyConflict: Row(-32000, 409, "CONFLICT"),
    errors.Unauthenticated: Row(-32000, 401, "UNAUTHENTICATED"),
    errors.NoTokens: Row(-32000, 401, "NO_TOKENS"),
    errors.NotLocal: Row(-32000, 403, "FORBIDDEN"),
    errors.Forbidden: Row(-32000, 403, "FORBIDDEN"),
    errors.RoleForbidden: Row(-32000, 403, "FORBIDDEN"),
    errors.HubWide: Row(-32000, 403, "FORBIDDEN"),
    errors.BadHost: Row(-32600, 421, "BAD_HOST"),
    errors.CrossSite: Row(-32600, 403, "CROSS_SITE"),
    errors.Smuggled: Row(-32600, 400, "INVALID_REQUEST"),
    errors.HeadTooLarge: Row(-32600, 431, "HEAD_TOO_LARGE"),
    errors.HeadEndless: Row(-32600, 431, "HEAD_TOO_LARGE"),
    errors.CodingUnknown: Row(-32600, 501, "CODING_UNKNOWN"),
    errors.TaskNotFound: Row(-32001, 404, "TASK_NOT_FOUND"),
    errors.TaskNotCancelable: Row(-32002, 400, "TASK_NOT_CANCELABLE"),
    errors.TaskOver: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
    errors.TaskEnded: Row(-32602, 400, "TASK_ENDED"),
    errors.PushConfigNotFound: Row(-32602, 404, "PUSH_CONFIG_NOT_FOUND"),
    errors.ArtifactNotFound: Row(-32000, 404, "ARTIFACT_NOT_FOUND"),
    errors.ArtifactUnreadable: Row(-32006, 502, "INVALID_AGENT_RESPONSE"),
    errors.RangeInvalid: Row(-32600, 416, "RANGE_NOT_SATISFIABLE"),
    errors.DeadLetterNotFound: Row(-32000, 404, "DEAD_LETTER_NOT_FOUND"),
    errors.FileNotFound: Row(-32000, 404, "FILE_NOT_FOUND"),
    errors.FileLost: Row(-32000, 410, "FILE_LOST"),
    errors.FileBound: Row(-32000, 409, "CONFLICT"),
    errors.FileIncomplete: Row(-32000, 409, "FILE_INCOMPLETE"),
    errors.UploadElsewhere: Row(-32000, 409, "CONFLICT"),
    errors.TooManyBytes: Row(-32000, 409, "CONFLICT"),
    errors.UploadTakenOver: Row(-32000, 409, "CONFLICT"),
    errors.RoleUnknown: Row(-32000, 404, "ROLE_UNKNOWN"),
    errors.NoRoleNamed: Row(-32000, 404, "ROLE_UNKNOWN"),
    errors.SkillAmbiguous: Row(-32000, 404, "ROLE_UNKNOWN"),
    errors.NoLiveWorker: Row(-32000, 503, "NO_LIVE_WORKER"),
    errors.SkillNotOffered: Row(-32000, 404, "SKILL_UNKNOWN"),
    errors.WorkerAway: Row(-32000, 503, "NO_LIVE_WORKER"),
    errors.WorkerBusy: Row(-32000, 503, "WORKER_BUSY"),
    errors.HubDraining: Row(-32000, 503, "HUB_DRAINING"),
    errors.BrokenOff: Row(-32000, 409, "CONFLICT"),
    errors.GoesInCircles: Row(-32000, 508, "LOOP"),
    errors.ChainRefused: Row(-32000, 400, "CHAIN_REFUSED"),
    errors.BudgetSpent: Row(-32000, 402, "BUDGET_SPENT"),
    errors.ParentOver: Row(-32000, 409, "PARENT_OVER"),
    errors.CallerGone: Row(-32000, 403, "FORBIDDEN"),
    errors.DeadlineBefore: Row(-32000, 504, "DEADLINE_EXCEEDED"),
    errors.TooManyRequests: Row(-32000, 429, "OVERLOADED"),
    errors.TooManyAtOnce: Row(-32000, 429, "OVERLOADED"),
    errors.TooManyRegistrations: Row(-32000, 429, "OVERLOADED"),
    errors.Overloaded: Row(-32000, 503, "OVERLOADED"),
    errors.ListTooSlow: Row(-32000, 503, "OVERLOADED"),
    errors.WorkerRefused: Row(-32000, 503, "WORKER_BUSY"),
    errors.WorkerUnreachable: Row(-32000, 502, "WORKER_UNREACHABLE"),
    errors.WorkerBroke: Row(-32000, 502, "WORKER_LOST"),
    errors.WorkerLost: Row(-32000, 502, "WORKER_LOST"),
    errors.WorkerSilent: Row(-32000, 504, "WORKER_SILENT"),
    errors.HubRestarted: Row(-32000, 503, "HUB_RESTARTED"),
    errors.LogFull: Row(-32000, 507, "OVERLOADED"),
    errors.DeadlineOfCall: Row(-32000, 504, "DEADLINE_EXCEEDED"),
    errors.DeadlinePassed: Row(-32000, 504, "DEADLINE_EXCEEDED"),
    errors.WorkerFault: Row(-32603, 502, "WORKER_ERROR"),
    errors.InvalidAnswer: Row(-32006, 500, "INVALID_AGENT_RESPONSE"),
    errors.LeaseUnknown: Row(-32000, 404, "LEASE_UNKNOWN"),
    errors.LeaseSuperseded: Row(-32000, 409, "LEASE_SUPERSEDED"),
    errors.InstanceConflict: Row(-32000, 409, "CONFLICT"),
    errors.DrainsItself: Row(-32000, 409, "CONFLICT"),
    errors.OfferInvalid: Row(-32602, 422, "OFFER_INVALID"),
    errors.LogMoved: Row(-32000, 409, "CONFLICT"),
    errors.StoreUnavailable: Row(-32000, 503, "OVERLOADED"),
    errors.NoRoomForFile: Row(-32000, 507, "OVERLOADED"),
    errors.SecretUnreadable: Row(-32000, 500, "INTERNAL"),
}
_INTERNAL = Row(-32603, 500, "INTERNAL")
# Errors of workers that callers get. A method that the worker lacks is unsupported, not unknown: the hub has it. A code that
# the caller's dialect lacks is "unsupported" too.
_OF_WORKERS = {
    -32001: Row(-32001, 404, "TASK_NOT_FOUND"),
    -32002: Row(-32002, 400, "TASK_NOT_CANCELABLE"),
    -32003: Row(-32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    -32004: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
    -32005: Row(-32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"),
    -32006: Row(-32006, 500, "INVALID_AGENT_RESPONSE"),
    -32007: Row(-32007, 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    -32008: Row(-32008, 400, "EXTENSION_SUPPORT_REQUIRED"),
    -32009: Row(-32009, 400, "VERSION_NOT_SUPPORTED"),
    -32600: Row(-32600, 400, "WORKER_ERROR"),
    -32601: Row(-32004, 400, "UNSUPPORTED_OPERATION"),
    -32602: Row(-32602, 400, "WORKER_ERROR"),
}
_A2A = range(-32009, -32000)
_A2A_DOMAIN = "a2a-protocol.org"
_STANDARD = {-32700, *range(-32603, -32599), *range(-32009, -32000)}


def row_of(error: type[BaseException]) -> Row:
    """The row of the error's class, or of its nearest base class."""
    for kind in error.__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return _INTERNAL


def fault_of(error: BaseException, own: DialectFaults = NO_FAULTS) -> Fault:
    """`own`: what the caller's dialect has otherwise."""
    row = own.rows.get(type(error)) or row_of(type(error))
    if isinstance(error, errors.WorkerFault):
        return _of_worker(error, own)
    if not isinstance(error, HubError):
        return Fault(row.code, row.status, row.reason, "Internal error.", None)
    data = None
    facts = {**error.facts, "taskId": error.task} if error.task else error.facts
    if own.explained and row.code in _A2A:
        data = [error_info(row.reason, facts, domain=_A2A_DOMAIN)]
    elif row.code not in _STANDARD or facts:
        data = [error_info(row.reason, facts)]
    return Fault(row.code, row.status, row.reason, error.message, data)


def error_info(reason: str, facts: dict[str, str], *, domain: str = DOMAIN) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain, "metadata": facts}


def _of_worker(error: errors.WorkerFault, own: DialectFaults) -> Fault:
    """Callers get a worker's specified errors; the text of any other error may contain internals."""
    if error.code not in _OF_WORKERS:
        return Fault(-32603, 502, "WORKER_ERROR", "The worker reported an internal error.", None)
    known = error.code not in _A2A or error.code >= own.lowest
    row = _OF_WORKERS[error.code if known else -32004]
    data = [error_info(row.reason, {}, domain=_A2A_DOMAIN)] if own.explained and row.code in _A2A else None
    return Fault(row.code, row.status, "WORKER_ERROR", error.text[:500] or "The worker refused the request.", data)
