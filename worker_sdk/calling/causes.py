"""Why a hub could not be reached: one sentence, a reason and a hint for each cause that a person can remove."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from worker_sdk.calling.proxies import HubProxy
from worker_sdk.calling.tls_errors import tls_failure, tls_required
from worker_sdk.config import is_here
from worker_sdk.errors import HubUnreachable

_NO_ROUTE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}
_ADDRESS_HINT = "Check the address in ROLECALL_HUB (--hub)."


async def connection_failure(
    error: httpx.HTTPError, url: str, *, ca_file: Path | None, proxy: HubProxy | None, timeout: float
) -> HubUnreachable:
    """For an error while connecting: nothing was sent."""
    if (refused := await tls_failure(error, url, ca_file)) is not None:
        return refused
    if isinstance(error, httpx.ProxyError):
        return _of_proxy(f"The proxy {proxy.name if proxy else ''} does not connect to {url}: {error}.", proxy)
    why, reason, hint = _why_not(error, proxy.url if proxy else url, timeout)
    if proxy is not None:
        return _of_proxy(f"The proxy {proxy.name} towards {url} does not answer: {why}.", proxy)
    return HubUnreachable(f"No hub answers at {url}: {why}.", reason=reason, hint=hint)


async def cut(error: httpx.HTTPError, url: str, *, has_answered: bool) -> HubUnreachable:
    """For an error after the request was sent. `has_answered`: there has been an answer from that address before."""
    if url.startswith("http:") and not has_answered and (refused := await tls_required(url)) is not None:
        return refused
    if isinstance(error, httpx.ReadTimeout):
        return HubUnreachable(f"The hub at {url} did not answer in time. The call may have run.")
    if isinstance(error, httpx.RemoteProtocolError) and not has_answered and "disconnected" not in str(error):
        return HubUnreachable(f"What listens at {url} does not speak HTTP.", reason="NOT_HTTP", hint=_ADDRESS_HINT)
    text = f"The hub at {url} closed the connection before it had answered. The call may have run."
    return HubUnreachable(text, hint=None if has_answered else _ADDRESS_HINT)


def _why_not(error: BaseException, url: str, timeout: float) -> tuple[str, str | None, str | None]:
    """The cause, and the reason and hint where it has its own."""
    host = urlsplit(url).hostname
    found = list(_chain(error))
    if isinstance(error, httpx.ConnectTimeout) or any(isinstance(one, TimeoutError) for one in found):
        hint = f"Does a firewall drop connections? {_ADDRESS_HINT}"
        return f"it did not accept a connection within {timeout:g} s", "CONNECT_TIMED_OUT", hint
    for one in found:
        if isinstance(one, socket.gaierror):
            if one.errno == socket.EAI_AGAIN:
                hint = "Does this machine reach its name server?"
                return f'the name "{host}" cannot be looked up now', "NAME_UNKNOWN", hint
            return f'there is no host "{host}"', "NAME_UNKNOWN", _ADDRESS_HINT
    if any(isinstance(one, ConnectionRefusedError) for one in found):
        elsewhere = None if is_here(host or "") else f"Does a hub run there, at that port? {_ADDRESS_HINT}"
        return "nothing listens there (connection refused)", None, elsewhere
    if any(isinstance(one, OSError) and one.errno in _NO_ROUTE for one in found):
        return "this machine has no route to it", "NO_ROUTE", f"Is the network or the VPN up? {_ADDRESS_HINT}"
    return "no connection came about", None, None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It and all that it comes from: several addresses of a host fail as a group."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _chain(one)
        error = error.__cause__ or error.__context__


def _of_proxy(text: str, proxy: HubProxy | None) -> HubUnreachable:
    return HubUnreachable(text, reason="PROXY_FAILED", hint=proxy.hint if proxy is not None else None)
