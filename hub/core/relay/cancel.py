"""Cancels a task for its caller: at the worker if it can be reached, and in the log in any case."""

from __future__ import annotations

import asyncio

from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from rolecall.errors import TaskNotCancelable, WorkerFault, WorkerLost
from rolecall.model.a2a import TaskState
from rolecall.model.task import TaskRow

_WAIT = 2.0


async def cancel(deps: Dependencies, relays: Relays, row: TaskRow) -> None:
    """TaskNotCancelable: the worker answers that it is too late."""
    relay = relays.of(row.id) or await _resting_relay(deps, row)
    if not relay.log_writer.ids.worker_task and not relay.log_writer.ended:
        await relay.started.within(_WAIT)
    worker, epoch = relay.worker, relay.registration.epoch if relay.registration else row.epoch
    registration = worker and deps.engine.registry.get(row.caller.workspace, worker)
    if registration is None or registration.epoch != epoch or not relay.log_writer.ids.worker_task:
        await relay.end(_unreachable(row), TaskState.CANCELED)
        return
    try:
        worker_event = await deps.forwarder.cancel(registration.offer, relay.log_writer.ids)
    except WorkerFault as error:
        if error.task_unknown:
            await relay.end(_unreachable(row), TaskState.CANCELED)
            return
        if error.too_late_to_cancel:
            raise TaskNotCancelable from error
        raise
    if relay.task is not None and not relay.log_writer.ended:
        # The stream usually brings the end first, with more detail.
        await asyncio.wait([relay.task], timeout=_WAIT / 4)
    if not relay.log_writer.ended:
        await relays.conclude(relay, worker_event)


async def _resting_relay(deps: Dependencies, row: TaskRow) -> Relay:
    """A paused task has no relay; cancelling it needs a TaskLogWriter all the same."""
    turns = await deps.engine.tasks.turns(row.id)
    return Relay(deps, row, turns, route=None, send=None)


def _unreachable(row: TaskRow) -> WorkerLost:
    return WorkerLost(f"Canceled. {row.worker or row.role} could not be notified.")
