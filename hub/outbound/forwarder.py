"""Calls workers over A2A. Implements ports.Forwarder; it never retries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from hub.outbound.answers import AnswerForm, AnswerLimits
from hub.outbound.call import Call
from hub.outbound.client import Client
from hub.outbound.credential import authorization_for
from hub.outbound.worker_protocol import WorkerMethod, WorkerProtocol, WorkerRequest, protocol_for
from hub.ports.forwarder import AnswerListener, Attach, Dispatch, OpenCall
from hub.ports.identity import Vault
from hub.ports.shares import Slots
from rolecall.errors import HubError, SecretUnreadable, WorkerBroke
from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.worker import Offer
from rolecall.protocol.extensions.files import FileUrls
from rolecall.protocol.workers import requests as calls

_JSON = b"application/json"
_STREAM = b"text/event-stream, application/json"


class HttpForwarder:
    def __init__(
        self,
        client: Client,
        limits: AnswerLimits | None = None,
        vault: Vault | None = None,
        event_slots: Slots | None = None,
        file_urls: FileUrls | None = None,
    ) -> None:
        """`vault` opens the credentials for workers; without it none are sent. `event_slots`: for large events; None:
        any number. `file_urls`: those of the hub's files.
        """
        self._file_urls = file_urls or FileUrls()
        self._slots = event_slots
        self._client = client
        self._vault = vault
        self._limits = limits or AnswerLimits()

    def deliver(self, workspace: str, offer: Offer, dispatch: Dispatch, listener: AnswerListener) -> OpenCall:
        send, stream = dispatch.send, offer.streaming
        protocol = _protocol(offer, dispatch.ids)
        params = calls.send_params(send, dispatch.ids, dispatch.references, stream=stream)
        if dispatch.contents:
            self._file_urls.fill(params["message"], dispatch.ids.log_dialect, dispatch.contents)
        request = protocol.request(WorkerMethod.STREAM if stream else WorkerMethod.SEND, dispatch.ids, params, send.extensions)
        headers = [*request.headers, ("A2A-Hop", str(send.hops + 1)), ("A2A-Task", dispatch.ids.task)]
        if send.trace is not None:
            headers.append(("traceparent", send.trace))
            if send.trace_state is not None:
                headers.append(("tracestate", send.trace_state))
        if dispatch.remaining is not None:
            headers.append(("A2A-Remaining", f"{max(dispatch.remaining, 0.0):.3f}"))
        if offer.replays:
            headers.append(("Idempotency-Key", _key_of(dispatch)))
        form = AnswerForm(
            str(offer.worker), protocol, self._limits, dispatch.ids, offer.replays, references=dispatch.references
        )
        return self._call(workspace, offer, request, headers, form, listener, _STREAM if stream else _JSON)

    def attach(self, workspace: str, offer: Offer, attach: Attach, listener: AnswerListener) -> OpenCall:
        protocol = _protocol(offer, attach.ids)
        request = protocol.request(WorkerMethod.SUBSCRIBE, attach.ids, calls.task_params(attach.ids))
        headers = [*request.headers]
        if attach.position is not None:
            headers.append(("Last-Event-ID", attach.position))
        form = AnswerForm(str(offer.worker), protocol, self._limits, attach.ids, offer.replays)
        return self._call(workspace, offer, request, headers, form, listener, _STREAM)

    async def fetch(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent:
        return await self._ask(workspace, offer, ids, WorkerMethod.GET)

    async def cancel(self, workspace: str, offer: Offer, ids: Ids) -> WorkerEvent:
        return await self._ask(workspace, offer, ids, WorkerMethod.CANCEL)

    async def probe(self, workspace: str, offer: Offer) -> bool:
        timeout, address = self._limits.probe_timeout, offer.address
        return await self._client.probe(offer.url, timeout, offer.networks, workspace, address=address)

    async def _ask(self, workspace: str, offer: Offer, ids: Ids, method: WorkerMethod) -> WorkerEvent:
        worker, protocol, limit = str(offer.worker), _protocol(offer, ids), self._limits.reply_timeout
        request = protocol.request(method, ids, calls.task_params(ids))
        listener = _Reply()
        form = AnswerForm(worker, protocol, self._limits, ids, is_task=True)
        call = self._call(workspace, offer, request, request.headers, form, listener, _JSON)
        try:
            async with asyncio.timeout(limit):
                outcome = await listener.outcome
        except TimeoutError as error:
            raise WorkerBroke(worker, f"it has not answered within {limit:g} s") from error
        finally:
            call.hang_up()
        if isinstance(outcome, HubError):
            raise outcome.copy()
        return outcome

    def _call(
        self,
        workspace: str,
        offer: Offer,
        request: WorkerRequest,
        headers: Sequence[tuple[str, str]],
        form: AnswerForm,
        listener: AnswerListener,
        accept: bytes,
    ) -> Call:
        call = Call(form, listener, self._slots, workspace)
        try:
            if shown := authorization_for(offer, self._vault):
                headers = [*headers, *shown]
                call.shows_credential()
        except SecretUnreadable as error:
            call.fail_soon(error)
            return call
        self._client.send(
            request.url,
            request.body,
            call,
            accept=accept,
            headers=headers,
            http_method=request.http_method,
            within=offer.networks,
            address=offer.address,
            workspace=workspace,
        )
        return call


class _Reply:
    """Listens for an answer of one event."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[WorkerEvent | HubError] = asyncio.get_running_loop().create_future()

    def received(self, batch: Sequence[WorkerEvent]) -> None:
        if batch and not self.outcome.done():
            self.outcome.set_result(batch[0])

    def closed(self, error: HubError | None) -> None:
        if error is not None and not self.outcome.done():
            self.outcome.set_result(error)


def _key_of(dispatch: Dispatch) -> str:
    """Two callers may use the same messageId and content: for the worker these must be two calls. So must a task's messages."""
    message = blake2b(dispatch.send.message_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{dispatch.ids.task}.{message}" if dispatch.ids.worker_task else dispatch.ids.task


def _protocol(offer: Offer, ids: Ids) -> WorkerProtocol:
    return protocol_for(offer.reached(ids.log_dialect))
