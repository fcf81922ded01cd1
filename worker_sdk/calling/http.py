"""HTTP to one hub: the client, its headers, and the errors for its refusals."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION
from rolecall.protocol.text.jsontext import NotJson, dump, parse
from worker_sdk.calling.proxies import HubProxy, proxy_towards
from worker_sdk.calling.trust import tls_towards
from worker_sdk.config import Token
from worker_sdk.errors import HubUnreachable, RolecallError, StreamLost, error_for

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 5.0
_SILENCE = 60.0
"""Seconds. A hub sends a comment every 15 s, so a stream that is silent for longer has a dead connection."""


class StreamedAnswer(NamedTuple):
    """`task`: the id of the task, if the hub told it before its first event."""

    chunks: AsyncIterator[bytes]
    task: str | None


class HubLink:
    """Owns the connections to a hub. It never repeats a request by itself."""

    def __init__(self, hub: str, token: Token | None = None, *, ca_file: Path | None = None) -> None:
        self.hub = hub
        self._token = token
        self._ca_file = ca_file
        self._client: httpx.AsyncClient | None = None
        self._proxy: HubProxy | None = None
        self._has_answered = False
        self._headers: dict[str, str] = {}

    def bound(self, headers: Mapping[str, str]) -> HubLink:
        """The same connections, with more headers in each request. Not to be closed."""
        bound = HubLink(self.hub, self._token, ca_file=self._ca_file)
        bound._client, bound._headers, bound._proxy = self.open(), dict(headers), self._proxy
        return bound

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: JsonObject | None = None,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = 10.0,
    ) -> Any:
        """The JSON that one of the hub's own APIs returns. RolecallError for any status but 2xx."""
        import httpx

        content = dump(body) if body is not None else None
        try:
            response = await self.open().request(
                method,
                self.hub + path,
                content=content,
                params=query,
                headers=_JSON_HEADERS | self._headers,
                timeout=_timeout(timeout),
            )
        except httpx.HTTPError as error:
            raise await self._unreachable(error) from None
        self._has_answered = True
        document = _document(response.content)
        if response.status_code >= 300:
            raise self._foreign(response.status_code, document) or _problem(response.status_code, document)
        return document

    async def call(self, path: str, method: str, params: JsonObject, *, timeout: float | None) -> Any:
        """The result of a JSON-RPC call."""
        envelope = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
        import httpx

        try:
            response = await self.open().post(
                self.hub + path, content=dump(envelope), headers=_RPC_HEADERS | self._headers, timeout=_timeout(timeout)
            )
        except httpx.HTTPError as error:
            raise await self._unreachable(error) from None
        self._has_answered = True
        return self._read(response.status_code, response.content)

    @asynccontextmanager
    async def stream(
        self, path: str, method: str, params: JsonObject, *, last_event_id: str | None = None
    ) -> AsyncIterator[StreamedAnswer]:
        """The answer to a streaming JSON-RPC call. A cut while it is read raises StreamLost."""
        envelope = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
        headers = {**_RPC_HEADERS, "accept": "text/event-stream", "want-a2a-task": "1"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        async with self._streamed("POST", path, headers, content=dump(envelope)) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                self._read(response.status_code, await response.aread())
                raise RolecallError("The hub did not answer a streaming call with a stream. Is this address a hub?")
            yield StreamedAnswer(_chunks(response), response.headers.get("a2a-task"))

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        content: AsyncIterable[bytes] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """A request to one of the hub's own APIs, whose body or answer is read in pieces. RolecallError for any status but
        2xx; a cut while the answer is read raises StreamLost.
        """
        async with self._streamed(method, path, headers or {}, query=query, content=content) as response:
            if response.status_code >= 300:
                raise _problem(response.status_code, _document(await response.aread()))
            yield response

    @asynccontextmanager
    async def _streamed(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes | AsyncIterable[bytes] | None = None,
    ) -> AsyncIterator[httpx.Response]:
        import httpx

        client = self.open()
        request = client.build_request(
            method,
            self.hub + path,
            content=content,
            params=query,
            headers={**headers, **self._headers},
            timeout=_timeout(_SILENCE),
        )
        try:
            response = await client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise await self._unreachable(error) from None
        self._has_answered = True
        try:
            yield response
        except httpx.HTTPError as error:
            raise StreamLost(f"The stream was cut ({type(error).__name__}).") from None
        finally:
            await response.aclose()

    def open(self) -> httpx.AsyncClient:
        """The client, made at the first use. ConfigError if the file of trusted certificates is not one, or for a proxy that
        is not supported.
        """
        if self._client is None:
            import httpx

            from worker_sdk.calling.token_auth import TokenAuth

            self._proxy = proxy_towards(self.hub)
            self._client = httpx.AsyncClient(
                headers={"accept-encoding": "identity"},
                auth=TokenAuth(self._token),
                verify=tls_towards(self.hub, self._ca_file),
                proxy=self._proxy.url if self._proxy is not None else None,
                trust_env=False,
                follow_redirects=False,
                limits=httpx.Limits(keepalive_expiry=2.0),
            )
        return self._client

    @property
    def token(self) -> str | None:
        """As it is now."""
        return str(self._token) if self._token is not None else None

    def _read(self, status: int, body: bytes) -> Any:
        document = _document(body)
        if (error := self._foreign(status, document)) is not None:
            raise error
        return read_answer(status, document)

    def _foreign(self, status: int, document: Any) -> RolecallError | None:
        """For an answer of the proxy in place of the hub's."""
        if self._proxy is None or isinstance(document, dict) or status not in _FROM_PROXIES:
            return None
        text = f"The proxy {self._proxy.name} does not reach {self.hub}: it answers HTTP {status}."
        return HubUnreachable(text, reason="PROXY_FAILED", hint=self._proxy.hint)

    async def _unreachable(self, error: httpx.HTTPError) -> HubUnreachable:
        import httpx

        from worker_sdk.calling.causes import connection_failure, cut

        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
            return await connection_failure(error, self.hub, ca_file=self._ca_file, proxy=self._proxy, timeout=CONNECT_TIMEOUT)
        return await cut(error, self.hub, has_answered=self._has_answered)


_JSON_HEADERS = {"content-type": "application/json", "accept": "application/json"}
_RPC_HEADERS = {**_JSON_HEADERS, "x-a2a-extensions": FILES_EXTENSION}
"""The SDK reads files by reference."""
_REFUSED = {
    401: "The token was not accepted (HTTP 401). Check ROLECALL_TOKEN.",
    403: "The request is not allowed (HTTP 403), and not by a hub: does a proxy refuse it?",
}
"""Said of an answer that is not the hub's own."""
_FROM_PROXIES = frozenset((407, 502, 503, 504))


def read_answer(status: int, document: Any) -> Any:
    """The result of a JSON-RPC answer, whatever its HTTP status. Raises the error that it contains."""
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        raise rpc_error(document["error"], status)
    if status >= 300:
        raise _problem(status, document)
    if not isinstance(document, dict) or "result" not in document:
        raise RolecallError("The hub's answer is not a JSON-RPC response. Is this address a hub?")
    return document["result"]


def rpc_error(error: JsonObject, status: int = 200) -> RolecallError:
    code = error.get("code")
    info: JsonObject = {}
    data = error.get("data")
    if isinstance(data, list) and data and isinstance(data[0], dict):
        info = data[0]
    facts = {str(name): str(value) for name, value in (info.get("metadata") or {}).items()}
    return error_for(
        str(error.get("message") or "The hub refused the call."),
        code=code if isinstance(code, int) else None,
        reason=str(info.get("reason") or ""),
        status=status,
        facts=facts,
    )


def _problem(status: int, document: Any) -> RolecallError:
    if not isinstance(document, dict) and status in _REFUSED:
        return error_for(_REFUSED[status], status=status)
    if not isinstance(document, dict):
        return RolecallError(f"The hub answered HTTP {status}. Is this address a hub?")
    facts = {"retryAfter": str(document["retry_after"])} if document.get("retry_after") is not None else {}
    text = str(document.get("detail") or document.get("title") or f"The hub answered HTTP {status}.")
    return error_for(text, reason=str(document.get("reason") or ""), status=status, facts=facts)


def _document(body: bytes) -> Any:
    try:
        return parse(body)
    except NotJson:
        return None


def _timeout(seconds: float | None) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(seconds, connect=CONNECT_TIMEOUT if seconds is None else min(CONNECT_TIMEOUT, seconds))


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    import httpx

    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx.HTTPError as error:
        raise StreamLost(f"The stream was cut ({type(error).__name__}).") from None
