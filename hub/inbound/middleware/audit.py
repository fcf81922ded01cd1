"""The audit trail: who did what to what, and how it ended. Ids and names; never what was said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rolecall.errors import HubError
from rolecall.model.ids import Caller
from rolecall.protocol.methods import Operation

NAME = "rolecall.audit"
_log = logging.getLogger(NAME)
_NOTED = frozenset({Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE})


def note(who: Caller | None, did: str, on: str, outcome: str) -> None:
    """`who` None: nobody known."""
    if _log.isEnabledFor(logging.INFO):
        name, workspace = (who.name, who.workspace) if who is not None else (None, None)
        _log.info(did, extra={"event": did, "who": name, "workspace": workspace, "on": on[:200], "outcome": outcome})


def note_call(who: Caller | None, operation: Operation, on: str, outcome: str) -> None:
    """Reading leaves no trail."""
    if operation in _NOTED and _log.isEnabledFor(logging.INFO):
        note(who, operation.value, on, outcome)


@contextmanager
def noted(who: Caller, did: str, on: str) -> Iterator[None]:
    """How what happens inside ended."""
    outcome = "ok"
    try:
        yield
    except HubError as error:
        outcome = type(error).__name__
        raise
    finally:
        note(who, did, on, outcome)
