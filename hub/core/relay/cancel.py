"""Ending a task because its caller wants it: at its worker where that can be reached, in the log in any case."""

from __future__ import annotations

import asyncio

from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from rolecall.errors import TaskNotCancelable, WorkerFault, WorkerLost
from rolecall.model.a2a import TaskState
from rolecall.model.task import TaskRow

_PATIENCE = 2.0


async def cancel(deps: Dependencies, relays: Relays, row: TaskRow) -> None:
    """TaskNotCancelable: its worker says that it is too late."""
    relay = relays.of(row.id) or await _silent_relay(deps, row)
    if not relay.log_writer.ids.worker_task and not relay.log_writer.ended:
        await relay.started.within(_PATIENCE)
    worker, epoch = relay.worker, relay.registration.epoch if relay.registration else row.epoch
    registration = worker and deps.engine.registry.get(row.caller.workspace, worker)
    if registration is None or registration.epoch != epoch or not relay.log_writer.ids.worker_task:
        await relay.end(_not_told(row), TaskState.CANCELED)
        return
    try:
        worker_event = await deps.forwarder.cancel(registration.offer, relay.log_writer.ids)
    except WorkerFault as error:
        if error.task_unknown:
            await relay.end(_not_told(row), TaskState.CANCELED)
            return
        if error.too_late_to_cancel:
            raise TaskNotCancelable from error
        raise
    if relay.task is not None and not relay.log_writer.ended:
        # The stream usually says it first, and more exactly.
        await asyncio.wait([relay.task], timeout=_PATIENCE / 4)
    if not relay.log_writer.ended:
        await relays.conclude(relay, worker_event)


async def _silent_relay(deps: Dependencies, row: TaskRow) -> Relay:
    """A paused task has no relay; cancelling it needs its scribe all the same."""
    turns = await deps.engine.tasks.turns(row.id)
    return Relay(deps, row, turns, route=None, send=None)


def _not_told(row: TaskRow) -> WorkerLost:
    return WorkerLost(f"Canceled. {row.worker or row.role} could not be told.")
