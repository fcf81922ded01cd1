"""The audit log: caller, action, target and outcome. It holds ids and names, never content."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rolecall.errors import HubError
from rolecall.model.ids import Caller
from rolecall.protocol.methods import Operation

NAME = "rolecall.audit"
_log = logging.getLogger(NAME)
_RECORDED = frozenset({Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE})


def record(caller: Caller | None, action: str, target: str, outcome: str) -> None:
    """`caller` None: unauthenticated."""
    if _log.isEnabledFor(logging.INFO):
        name, workspace = (caller.name, caller.workspace) if caller is not None else (None, None)
        _log.info(action, extra={"event": action, "who": name, "workspace": workspace, "on": target[:200], "outcome": outcome})


def record_call(caller: Caller | None, operation: Operation, target: str, outcome: str) -> None:
    """Operations that only read are not recorded."""
    if operation in _RECORDED and _log.isEnabledFor(logging.INFO):
        record(caller, operation.value, target, outcome)


@contextmanager
def recorded(caller: Caller, action: str, target: str) -> Iterator[None]:
    """Records the outcome of the block: "ok", or the name of the error."""
    outcome = "ok"
    try:
        yield
    except HubError as error:
        outcome = type(error).__name__
        raise
    finally:
        record(caller, action, target, outcome)
