"""Cancels a task for its caller: at the worker if it can be reached, and in the log in any case."""

from __future__ import annotations

from hub.core.relay.context import Dependencies
from hub.core.relay.relay import Relay
from hub.core.relay.relays import Relays
from hub.core.relay.transitions import Trigger
from rolecall.errors import Overloaded, TaskNotCancelable, WorkerFault, WorkerFull, WorkerLost
from rolecall.model.a2a import TERMINAL
from rolecall.model.task import TaskRow

_WAIT = 2.0


async def cancel(deps: Dependencies, relays: Relays, row: TaskRow) -> None:
    """TaskNotCancelable: the worker answers that it is too late."""
    running = relays.of(row.id)
    if running is not None:
        await _cancel(deps, running)
        return
    relay = relays.open(row, await deps.engine.tasks.turns(row.id))
    try:
        await _cancel(deps, relay)
    finally:
        relay.post(Trigger.LET_GO)


async def _cancel(deps: Dependencies, relay: Relay) -> None:
    if not relay.log_writer.ids.worker_task and not relay.log_writer.ended:
        await relay.started.within(_WAIT)
    row, worker = relay.row, relay.worker
    epoch = relay.registration.epoch if relay.registration else row.epoch
    registration = worker and deps.engine.registry.get(row.caller.workspace, worker)
    if registration is None or registration.epoch != epoch or not relay.log_writer.ids.worker_task:
        await _end(relay)
        return
    try:
        worker_event = await deps.forwarder.cancel(row.caller.workspace, registration.offer, relay.log_writer.ids)
    except (WorkerFull, Overloaded):
        # The task's own stream gives its connection back, and that is enough to tell the worker.
        await _end(relay)
        relay.call_off(registration.offer)
        return
    except WorkerFault as error:
        if error.task_unknown:
            await _end(relay)
            return
        if error.too_late_to_cancel:
            raise TaskNotCancelable from error
        raise
    # The stream usually brings the end first, with more detail, and a worker that replays leaves nothing out. The stream of a
    # paused task is over, so that it is opened again, unless its relay has ended with it a moment ago.
    replays = registration.offer.replays and relay.log_writer.position is not None
    if worker_event.state in TERMINAL and replays and not relay.over:
        relay.post(Trigger.CHECK)
    if not relay.call_is_open or not await relay.ends_within(_WAIT / 4):
        relay.post(Trigger.SEEN_ENDED if worker_event.state in TERMINAL else Trigger.SEEN, worker_event)
        await relay.caught_up()


async def end(deps: Dependencies, relays: Relays, row: TaskRow) -> None:
    """End it in the log, whatever its worker does. StoreUnavailable."""
    relay = relays.of(row.id) or relays.open(row, await deps.engine.tasks.turns(row.id))
    await _end(relay)


async def _end(relay: Relay) -> None:
    await relay.cancel(WorkerLost(f"Canceled. {relay.worker or relay.row.role} could not be notified."))
    relay.post(Trigger.LET_GO)
