"""Calls workers over A2A. Implements ports.Forwarder; it never retries."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from hub.outbound.answers import SingleAnswer, StreamedAnswer, check_type, is_stream, raise_failure, read_worker_task
from hub.outbound.client import Client
from hub.outbound.connection import Response
from hub.outbound.worker_protocol import WorkerMethod, WorkerProtocol, WorkerRequest, protocol_for
from hub.ports.forwarder import Attach, Dispatch
from hub.ports.vault import Vault
from rolecall.errors import WorkerBroke
from rolecall.model.a2a import Ids, WorkerEvent
from rolecall.model.value import replace
from rolecall.model.worker import Offer
from rolecall.protocol.workers import requests as calls

_JSON = b"application/json"
_STREAM = b"text/event-stream, application/json"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,128})?")


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """`reply_timeout` limits answers that a worker has ready: a task, a cancellation, an error. An answer to a message has no
    such limit, because a worker may work for long before its first event: the relay watches its silence.
    """

    max_answer: int = 16 * 1024 * 1024
    max_event: int = 1024 * 1024
    max_error: int = 1024 * 1024
    reply_timeout: float = 10.0
    probe_timeout: float = 1.5


class HttpForwarder:
    def __init__(self, client: Client, limits: AnswerLimits | None = None, vault: Vault | None = None) -> None:
        """`vault` opens the credentials for workers; without it none are sent."""
        self._client = client
        self._vault = vault
        self._limits = limits or AnswerLimits()

    def deliver(self, offer: Offer, dispatch: Dispatch) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        send, stream = dispatch.send, offer.streaming
        protocol = _protocol(offer, dispatch.ids)
        params = calls.send_params(send, dispatch.ids, dispatch.references, stream=stream)
        request = protocol.request(WorkerMethod.STREAM if stream else WorkerMethod.SEND, dispatch.ids, params, send.extensions)
        headers = [*request.headers, ("A2A-Hop", str(send.hops + 1))]
        if offer.credential:
            headers += self._credential(offer)
        if send.trace is not None:
            headers += _trace(send.trace)
        if offer.replays:
            # Two callers may use the same messageId and content: for the worker these must be two calls.
            headers.append(("Idempotency-Key", dispatch.ids.task))
        return _Call(self._client, self._limits, offer, protocol, replace(request, headers=tuple(headers)), streams=stream)

    def attach(self, offer: Offer, attach: Attach) -> AbstractAsyncContextManager[AsyncIterator[Sequence[WorkerEvent]]]:
        protocol = _protocol(offer, attach.ids)
        request = protocol.request(WorkerMethod.SUBSCRIBE, attach.ids, calls.task_params(attach.ids))
        headers = [*request.headers, *self._credential(offer)]
        if attach.position is not None:
            headers.append(("Last-Event-ID", attach.position))
        return _Call(self._client, self._limits, offer, protocol, replace(request, headers=tuple(headers)), streams=True)

    async def fetch(self, offer: Offer, ids: Ids) -> WorkerEvent:
        return await self._call(offer, ids, WorkerMethod.GET)

    async def cancel(self, offer: Offer, ids: Ids) -> WorkerEvent:
        return await self._call(offer, ids, WorkerMethod.CANCEL)

    async def probe(self, offer: Offer) -> bool:
        return await self._client.probe(offer.url, self._limits.probe_timeout, offer.networks)

    def _credential(self, offer: Offer) -> list[tuple[str, str]]:
        if not offer.credential or self._vault is None:
            return []
        return [("Authorization", self._vault.open(b64decode(offer.credential)).decode())]

    async def _call(self, offer: Offer, ids: Ids, method: WorkerMethod) -> WorkerEvent:
        worker, protocol = str(offer.worker), _protocol(offer, ids)
        request = protocol.request(method, ids, calls.task_params(ids))
        headers = [*request.headers, *self._credential(offer)]
        limit = self._limits.reply_timeout
        try:
            async with asyncio.timeout(limit):
                response = await self._client.post(
                    request.url,
                    request.body,
                    worker=worker,
                    headers=headers,
                    http_method=request.http_method,
                    within=offer.networks,
                )
                try:
                    if not 200 <= response.status < 300:
                        await raise_failure(response, protocol, self._limits.max_error)
                    check_type(response)
                    answer = await response.read_all(self._limits.max_answer)
                finally:
                    response.close()
        except TimeoutError as error:
            raise WorkerBroke(worker, f"it has not answered within {limit:g} s") from error
        return read_worker_task(worker, protocol, answer)


class _Call:
    """One message or subscription: entering the context sends it, leaving cancels what has not arrived."""

    def __init__(
        self,
        client: Client,
        limits: AnswerLimits,
        offer: Offer,
        protocol: WorkerProtocol,
        request: WorkerRequest,
        *,
        streams: bool,
    ) -> None:
        self._client = client
        self._limits = limits
        self._offer = offer
        self._protocol = protocol
        self._request = request
        self._accept = _STREAM if streams else _JSON
        self._response: Response | None = None
        self._answer: StreamedAnswer | SingleAnswer | None = None

    async def __aenter__(self) -> AsyncIterator[Sequence[WorkerEvent]]:
        offer, request = self._offer, self._request
        response = await self._client.post(
            request.url,
            request.body,
            worker=str(offer.worker),
            accept=self._accept,
            headers=request.headers,
            http_method=request.http_method,
            within=offer.networks,
        )
        try:
            if not 200 <= response.status < 300:
                await self._raise_failure(response)
            if is_stream(response):
                self._answer = StreamedAnswer(response, self._protocol, replays=offer.replays, max_event=self._limits.max_event)
            else:
                check_type(response)
                self._answer = SingleAnswer(response, self._protocol, limit=self._limits.max_answer)
        except BaseException:
            response.close()
            raise
        self._response = response
        return self._answer

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._response is None or self._answer is None:
            return
        if kind is None and self._answer.finished:
            self._response.discard()
        else:
            self._response.close()

    async def _raise_failure(self, response: Response) -> None:
        try:
            async with asyncio.timeout(self._limits.reply_timeout):
                await raise_failure(response, self._protocol, self._limits.max_error)
        except TimeoutError as error:
            raise WorkerBroke(response.worker, f"HTTP {response.status}, and no end to it") from error


def _protocol(offer: Offer, ids: Ids) -> WorkerProtocol:
    return protocol_for(offer.reached(ids.log_dialect))


def _trace(trace: str | None) -> list[tuple[str, str]]:
    """The caller's traceparent, only if it is valid."""
    return [("traceparent", trace)] if trace is not None and _TRACEPARENT.fullmatch(trace) else []
