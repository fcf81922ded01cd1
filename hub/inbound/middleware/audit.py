"""The audit log: caller, action, target and outcome, and where the request came from. It holds ids and names, never content."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hub.inbound.a2a.operations import OperationCall
from hub.inbound.middleware.authentication import principal_of, require
from hub.server.asgi import Scope
from rolecall.errors import AccessError, HubError, TokenUnknown
from rolecall.log import AUDIT
from rolecall.model.ids import Caller
from rolecall.model.principal import Principal, Right
from rolecall.protocol.faults import fault_of
from rolecall.protocol.methods import Operation

_log = logging.getLogger(AUDIT)
_RECORDED = frozenset({Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE})
_PROXY_HEADERS = frozenset({b"x-forwarded-for", b"forwarded"})
_LONGEST = 200
Facts = dict[str, str | int | None]
_tasks: dict[int, str] = {}
"""The tasks of recorded calls under way, by the identity of the call."""


def record(
    scope: Scope, action: str, target: str, outcome: str = "ok", *, caller: Caller | None = None, facts: Facts | None = None
) -> None:
    """`scope`: of the request, once it was admitted or refused. `caller`: in whose name it acts, if not its holder's."""
    if not _log.isEnabledFor(logging.INFO):
        return
    principal, client = principal_of(scope), scope.get("client")
    who = caller or (principal.caller if principal is not None else None)
    extra: Facts = {
        "event": action,
        "who": who.name if who is not None else None,
        "workspace": who.workspace if who is not None else None,
        "on": target[:_LONGEST],
        "outcome": outcome,
        "token_id": principal.token or None if principal is not None else None,
        "peer": client[0] if client else None,
        "forwarded": _client_of_proxy(scope),
    }
    _log.info(action, extra={**extra, **(facts or {})})


def _client_of_proxy(scope: Scope) -> str | None:
    """For whom the peer says that it sends the request. Whoever reads it knows which peers are proxies."""
    found = next((value for name, value in scope["headers"] if name in _PROXY_HEADERS), b"")
    return found.decode("latin-1")[:_LONGEST] or None


def record_refusal(scope: Scope, error: HubError) -> None:
    """A request that was turned away before it did anything."""
    facts: Facts = {"token_id": error.token or None} if isinstance(error, TokenUnknown) else {}
    record(scope, "turned away", scope["path"], outcome_of(error), facts=facts)


def record_call(scope: Scope, call: OperationCall, target: str, outcome: str) -> None:
    """Operations that only read are not recorded."""
    if call.operation in _RECORDED and _log.isEnabledFor(logging.INFO):
        task = _tasks.pop(id(call), "") or call.params.get("id") or call.params.get("taskId")
        facts: Facts = {"task": task[:_LONGEST] if isinstance(task, str) else None}
        record(scope, call.operation.value, target, outcome, caller=call.caller, facts=facts)


def note_task(call: OperationCall, task: str) -> None:
    """That task is the call's, for `record_call`, which is made for each call."""
    if call.operation in _RECORDED and task:
        _tasks[id(call)] = task


@contextmanager
def recorded(scope: Scope, action: str, target: str, *, caller: Caller | None = None) -> Iterator[Facts]:
    """Records the outcome of the block: "ok", or the reason of the error in lower case; and the facts that the block adds."""
    outcome = "ok"
    facts: Facts = {}
    try:
        yield facts
    except HubError as error:
        outcome = outcome_of(error)
        raise
    finally:
        record(scope, action, target, outcome, caller=caller, facts=facts)


def required(scope: Scope, principal: Principal | None, right: Right) -> Principal:
    """As `require`, and a refusal is recorded. Unauthenticated, Forbidden."""
    try:
        return require(principal, right)
    except AccessError as error:
        record_refusal(scope, error)
        raise


def record_token(action: str, principal: Principal) -> None:
    """A change of the tokens, which no request made."""
    caller = principal.caller
    facts: Facts = {
        "event": action,
        "who": caller.name,
        "workspace": caller.workspace,
        "on": principal.kind.value,
        "outcome": "ok",
    }
    _log.info(action, extra={**facts, "token_id": principal.token})


def outcome_of(error: HubError) -> str:
    return fault_of(error).reason.lower()
