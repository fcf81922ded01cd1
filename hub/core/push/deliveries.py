"""Delivers the events of task logs to webhooks: in order, at least once, with retries for a day."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from hub.core.relay.context import Dependencies
from hub.core.shares.table import DELIVERIES_AT_ONCE, DELIVERIES_PER_WORKSPACE
from hub.core.supervisor import Supervisor
from hub.ports.identity import Vault
from hub.ports.state.engine import Engine
from hub.ports.state.pushes import DeliveryClaim, DeliveryRoom
from hub.ports.webhooks import WebhookRequest, WebhookResult, Webhooks
from rolecall.errors import AnswerNotSent, InvalidAnswer, SecretUnreadable, StoreUnavailable, TaskNotFound
from rolecall.model.a2a import Logged
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig, SealedConfig
from rolecall.model.task import TaskRow, Turn

log = logging.getLogger(__name__)

NOW = timedelta()
_FIRST_RETRY = timedelta(seconds=1)
_LONGEST_RETRY = timedelta(hours=1)
_DOUBLINGS_LIMIT = 12
_TIMEOUT, _TOO_MANY_REQUESTS = 408, 429
_UNTRANSLATABLE = 422
"""Treated like a refusal of the receiver: an event that its dialect cannot express now, it cannot express later."""
_TIME_SLICE = 5.0
"""Seconds that one receiver is served without a break; then other receivers come first."""
_THREAD_ABOVE = 256 * 1024
"""Bytes of log. A notice made of a longer log would block the loop, so a thread makes it."""


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """`retry`: how long a receiver is retried after its first failure. `lease`: how long after the death of one hub another one
    takes over. `look_every`: how late a retry may be, in seconds. Each workspace counts `per_host` by itself.
    """

    retry: timedelta = timedelta(hours=24)
    at_once: int = DELIVERIES_AT_ONCE
    per_workspace: int = DELIVERIES_PER_WORKSPACE
    per_host: int = 4
    lease: timedelta = timedelta(seconds=30)
    look_every: float = 0.5


class Deliveries:
    """One loop claims the due deliveries; each claimed receiver has a named task."""

    def __init__(
        self,
        deps: Dependencies,
        webhooks: Webhooks,
        vault: Vault,
        supervisor: Supervisor,
        policy: DeliveryPolicy | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self._engine = deps.engine
        self._pushes = deps.engine.pushes
        self._codec = deps.codec
        self._inline = deps.inline_files()
        self._observer = deps.observer
        self._clock = deps.clock
        self._webhooks = webhooks
        self._vault = vault
        self._supervisor = supervisor
        self._policy = policy or DeliveryPolicy()
        self._rng = rng
        self._wake = asyncio.Event()
        self._share = deps.shares.deliveries
        self._running: dict[asyncio.Task[None], DeliveryClaim] = {}

    async def run(self) -> None:
        self._pushes.on_due(self._wake.set)
        while True:
            self._wake.clear()
            try:
                await self._begin_what_is_due()
            except StoreUnavailable:
                log.debug("nothing can be claimed", extra={"event": "push_unclaimed"})
            try:
                async with asyncio.timeout(self._policy.look_every):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def cancel(self, task: TaskId, config: str | None = None) -> None:
        """Stop the running deliveries of a config that has just been changed or deleted, or of a task that has been erased."""
        for job, claim in self._running.items():
            if claim.config.task == task and config in (None, claim.config.id):
                job.cancel()

    # --- pieces

    async def _begin_what_is_due(self) -> None:
        policy = self._policy
        limit = policy.at_once - len(self._running)
        if limit <= 0:
            return
        busy = Counter((claim.caller.workspace, claim.config.host) for claim in self._running.values())
        for claim in await self._pushes.claim(DeliveryRoom(limit, policy.per_workspace, policy.per_host, busy), policy.lease):
            for old, running in self._running.items():
                if _receiver(running) == _receiver(claim):
                    old.cancel()  # its lease ended before it did
            job = self._supervisor.run_once(f"push {claim.config.task}.{claim.config.id}", self._deliver(claim))
            self._running[job] = claim
            self._share.fill(claim.caller.workspace)
            job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._share.give_back(self._running.pop(job).caller.workspace)
        self._wake.set()

    async def _deliver(self, claim: DeliveryClaim) -> None:
        try:
            await self._deliver_in_order(claim)
        except TaskNotFound:
            return  # the task and its claim were deleted meanwhile
        except StoreUnavailable:
            # A sent event that could not be recorded is sent again, with the same id, when the claim's lease has ended.
            log.warning("a delivery could not be recorded", extra={"event": "push_unnoted", **_log_fields(claim)})
        except asyncio.CancelledError:
            await self._pushes.release(claim)
            raise

    async def _deliver_in_order(self, claim: DeliveryClaim) -> None:
        began = self._clock.monotonic()
        task_log = _TaskLog(await self._engine.tasks.get(claim.caller, claim.config.task))
        at, last = claim.sent, claim.last
        newest_only = self._codec.rules(claim.config.dialect).notice_is_task
        while at < last:
            at = last if newest_only else Cursor(at + 1)
            await task_log.read(self._engine, last)
            result = await self._send(claim, task_log, at)
            hold = self._policy.lease if self._clock.monotonic() - began < _TIME_SLICE else NOW
            if 200 <= result.status < 300:
                self._observer.pushed("delivered")
                owed = await self._pushes.delivered(claim, at, hold=hold)
                claim = claim._replace(failures=0, failing_for=NOW)
            elif self._is_final(claim, result):
                owed = await self._bury(claim, at, result, hold)
            else:
                await self._postpone(claim, result)
                return
            if at >= last:
                self._observer.push_caught_up(claim.waiting_for.total_seconds() + self._clock.monotonic() - began)
            if owed is None:
                return
            last = owed

    async def _send(self, claim: DeliveryClaim, task_log: _TaskLog, at: Cursor) -> WebhookResult:
        try:
            config = self._unsealed(claim.config)
        except SecretUnreadable as error:
            return WebhookResult(0, error.message)
        try:
            body = await self._notice(task_log, at, claim.config)
        except InvalidAnswer as error:
            return WebhookResult(_UNTRANSLATABLE, error.why)
        except AnswerNotSent as error:
            return WebhookResult(0, error.message)
        return await self._webhooks.post(
            WebhookRequest(claim.caller.workspace, f"{config.task}.{config.id}.{at}", config, body)
        )

    def _is_final(self, claim: DeliveryClaim, result: WebhookResult) -> bool:
        refused = 400 <= result.status < 500 and result.status not in (_TIMEOUT, _TOO_MANY_REQUESTS)
        return refused or (claim.failures > 0 and claim.failing_for >= self._policy.retry)

    async def _bury(self, claim: DeliveryClaim, at: Cursor, result: WebhookResult, hold: timedelta) -> Cursor | None:
        self._observer.pushed("dead")
        log.warning(
            "an event was given up", extra={"event": "push_dead", **_log_fields(claim), "cursor": at, "why": result.why}
        )
        return await self._pushes.bury(claim, at, result.why, hold=hold)

    async def _postpone(self, claim: DeliveryClaim, result: WebhookResult) -> None:
        self._observer.pushed("failed")
        retry_in = self._retry_in(claim, result)
        fields = {
            "event": "push_failed",
            **_log_fields(claim),
            "why": result.why,
            "retry_s": round(retry_in.total_seconds(), 1),
        }
        log.warning("a receiver did not take an event", extra=fields)
        await self._pushes.postpone(claim, retry_in)

    def _retry_in(self, claim: DeliveryClaim, result: WebhookResult) -> timedelta:
        """Doubles each time, with jitter, so that receivers that failed together are not retried together."""
        doubled = min(_FIRST_RETRY * (1 << min(claim.failures, _DOUBLINGS_LIMIT)), _LONGEST_RETRY)
        usual = doubled * (0.75 + self._rng() / 2)
        wanted = max(usual, min(result.retry_after or NOW, _LONGEST_RETRY))
        return min(wanted, max(self._policy.retry - claim.failing_for, _FIRST_RETRY))

    def _unsealed(self, config: SealedConfig) -> PushConfig:
        token, credentials = (
            self._vault.open(sealed).decode() if sealed is not None else None for sealed in (config.token, config.credentials)
        )
        return PushConfig(config.task, config.id, config.url, config.dialect, token, config.schemes, credentials)

    async def _notice(self, task_log: _TaskLog, at: Cursor, config: SealedConfig) -> bytes:
        """AnswerNotSent: there is no room for its files at the moment."""
        whole = self._codec.rules(config.dialect).notice_is_task
        make = partial(self._codec.notice, dialect=config.dialect, numbers=config.numbers)
        workspace, events = task_log.row.caller.workspace, task_log.events[:at]
        if not whole and not config.by_reference:
            last = events[-1]
            events[-1] = Logged(last.cursor, await self._inline.event(workspace, config.task, last.event))
        if task_log.size < _THREAD_ABOVE:
            body = make(task_log.row, task_log.turns, events)
        else:
            body = await asyncio.to_thread(make, task_log.row, task_log.turns, events)
        if whole and not config.by_reference:
            body = await self._inline.document(workspace, config.task, body, config.dialect)
        return body


class _TaskLog:
    """A task's log up to the events that were needed so far. Each event is read once."""

    def __init__(self, row: TaskRow) -> None:
        self.row = row
        self.turns: Sequence[Turn] = ()
        self.events: list[Logged] = []
        self.size = 0

    async def read(self, engine: Engine, upto: Cursor) -> None:
        if len(self.events) < upto:
            more = await engine.events.read(self.row.id, after=Cursor(len(self.events)), upto=upto)
            if len(self.events) + len(more) < upto:
                raise TaskNotFound
            self.events.extend(more)
            self.size += sum(len(logged.event.body) for logged in more)
            self.turns = await engine.tasks.turns(self.row.id)


def _receiver(claim: DeliveryClaim) -> tuple[str, str, int]:
    return claim.config.task, claim.config.id, claim.last if claim.only else 0


def _log_fields(claim: DeliveryClaim) -> dict[str, str]:
    config = claim.config
    return {"workspace": claim.caller.workspace, "task": config.task, "config": config.id, "host": config.host}
