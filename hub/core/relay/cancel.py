"""Ending a task because its caller wants it: at its worker where that can be reached, in the log in any case."""

from __future__ import annotations

import asyncio

from hub.core.relay.context import Surroundings
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from rolecall.errors import TaskNotCancelable, WorkerFault, WorkerLost
from rolecall.model.a2a import TaskState
from rolecall.model.task import TaskRow

_PATIENCE = 2.0
_NOT_FOUND, _NOT_CANCELABLE = -32001, -32002


async def cancel(around: Surroundings, relays: Relays, row: TaskRow) -> None:
    """TaskNotCancelable: its worker says that it is too late."""
    relay = relays.of(row.id) or await _silent_relay(around, row)
    if not relay.scribe.ids.worker_task and not relay.scribe.ended:
        await relay.started.within(_PATIENCE)
    worker, epoch = relay.worker, relay.registration.epoch if relay.registration else row.epoch
    registration = worker and around.engine.registry.get(row.caller.workspace, worker)
    if registration is None or registration.epoch != epoch or not relay.scribe.ids.worker_task:
        await relay.end(_unheard(row), TaskState.CANCELED)
        return
    try:
        heard = await around.forwarder.cancel(registration.offer, relay.scribe.ids)
    except WorkerFault as error:
        if error.code == _NOT_FOUND:
            await relay.end(_unheard(row), TaskState.CANCELED)
            return
        if error.code == _NOT_CANCELABLE:
            raise TaskNotCancelable from error
        raise
    if relay.task is not None and not relay.scribe.ended:
        # The stream usually says it first, and more exactly.
        await asyncio.wait([relay.task], timeout=_PATIENCE / 4)
    if not relay.scribe.ended:
        await relays.conclude(relay, heard)


async def _silent_relay(around: Surroundings, row: TaskRow) -> Relay:
    """A paused task has no relay; cancelling it needs its scribe all the same."""
    turns = await around.engine.tasks.turns(row.id)
    return Relay(around, row, turns, route=None, send=None)


def _unheard(row: TaskRow) -> WorkerLost:
    return WorkerLost(f"Canceled. {row.worker or row.role} could not be told.")
