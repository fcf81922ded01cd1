"""Why a hub could not be reached, in one sentence for each cause; and through which proxy it is reached."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.helpers.certificates import new_authority
from tests.helpers.raw_server import Peer, RawServer, always, answer
from tests.unit.worker_sdk.registry import Registry
from worker_sdk import HubClient, Lease
from worker_sdk.calling.causes import connection_failure
from worker_sdk.calling.http import HubLink
from worker_sdk.calling.proxies import proxy_towards
from worker_sdk.errors import ConfigError, RolecallError

HEALTHY = always(answer(b'{"status": "ok"}'))
RUNNING = "Is the hub running? Start one with rolecall up or rolecall dev, or name another with --hub or ROLECALL_HUB."
CHECK = "Check the address in ROLECALL_HUB (--hub)."


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def failure(url: str) -> RolecallError:
    """The error of a client's first request."""
    async with HubClient(url) as hub:
        with pytest.raises(RolecallError) as caught:
            await hub.health()
    return caught.value


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


# --- causes


async def test_a_refused_connection() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    error = await failure(url)
    assert str(error) == f"No hub answers at {url}: nothing listens there (connection refused)."
    assert (error.reason, error.hint) == ("HUB_UNREACHABLE", RUNNING)


async def test_a_host_with_several_addresses_that_all_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed_port()
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{end}", port)) for end in (1, 2)]

    async def two_addresses(self: object, *about: object, **more: object) -> object:
        return found

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", two_addresses)
    error = await failure(f"http://hub.test:{port}")
    assert "nothing listens there (connection refused)." in str(error)
    assert error.hint == f"Does a hub run there, at that port? {CHECK}"


@pytest.mark.parametrize(
    ("problem", "text", "hint"),
    [
        (socket.EAI_NONAME, 'there is no host "hub.test".', CHECK),
        (socket.EAI_AGAIN, 'the name "hub.test" cannot be looked up now.', "Does this machine reach its name server?"),
    ],
)
async def test_a_name_without_an_address(monkeypatch: pytest.MonkeyPatch, problem: int, text: str, hint: str) -> None:
    async def fail(self: object, *about: object, **more: object) -> object:
        raise socket.gaierror(problem, "whatever the system says")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", fail)
    error = await failure("http://hub.test:8420")
    assert str(error) == f"No hub answers at http://hub.test:8420: {text}"
    assert (error.reason, error.hint) == ("NAME_UNKNOWN", hint)


@contextmanager
def full_listener() -> Iterator[int]:
    """It accepts nothing, and its queue is full: further connections get no answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield int(port)
        for one in waiting:
            one.close()


async def test_a_connection_that_is_not_accepted_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker_sdk.calling.http.CONNECT_TIMEOUT", 0.2)
    with full_listener() as port:
        error = await failure(f"http://127.0.0.1:{port}")
    assert str(error) == f"No hub answers at http://127.0.0.1:{port}: it did not accept a connection within 0.2 s."
    assert (error.reason, error.hint) == ("CONNECT_TIMED_OUT", f"Does a firewall drop connections? {CHECK}")


async def test_a_network_without_a_route() -> None:
    raised = httpx.ConnectError("All connection attempts failed")
    raised.__cause__ = OSError(errno.ENETUNREACH, "Network is unreachable")
    error = await connection_failure(raised, "http://10.0.0.9:8420", ca_file=None, proxy=None, timeout=5.0)
    assert str(error) == "No hub answers at http://10.0.0.9:8420: this machine has no route to it."
    assert (error.reason, error.hint) == ("NO_ROUTE", f"Is the network or the VPN up? {CHECK}")


async def test_a_cause_that_has_no_name_is_no_connection() -> None:
    error = await connection_failure(httpx.ConnectError("?"), "http://h:1", ca_file=None, proxy=None, timeout=5.0)
    assert (str(error), error.reason) == ("No hub answers at http://h:1: no connection came about.", "HUB_UNREACHABLE")


async def test_something_else_than_http() -> None:
    async def other(peer: Peer) -> None:
        await peer.write(b"220 mail ready\r\n250 HELO\r\n\r\n")
        await peer.gone()

    async with RawServer(other) as server:
        error = await failure(server.url)
    assert (str(error), error.reason) == (f"What listens at {server.url.rstrip('/')} does not speak HTTP.", "NOT_HTTP")


async def test_a_connection_that_is_closed_without_an_answer() -> None:
    async def shut(peer: Peer) -> None:
        await peer.read_request()

    async with RawServer(shut) as server:
        error = await failure(server.url)
    url = server.url.rstrip("/")
    assert str(error) == f"The hub at {url} closed the connection before it had answered. The call may have run."
    assert error.hint == CHECK


async def test_a_hub_that_does_not_answer_in_time() -> None:
    async def silent(peer: Peer) -> None:
        await peer.read_request()
        await peer.gone()

    async with RawServer(silent) as server:
        link = HubLink(server.url.rstrip("/"))
        with pytest.raises(RolecallError, match=r"did not answer in time\. The call may have run"):
            await link.ask("GET", "/health", timeout=0.1)
        await link.close()


# --- proxies


@asynccontextmanager
async def proxy(towards: RawServer, seen: list[str]) -> AsyncIterator[str]:
    """An HTTP proxy in front of one server. `seen`: the first line of each request."""
    host, port = "127.0.0.1", int(towards.url.rstrip("/").rpartition(":")[2])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n")[0].decode()
        seen.append(line)
        behind_reader, behind = await asyncio.open_connection(host, port)
        if line.startswith("CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            behind.write(head)
        jobs = [asyncio.create_task(copy(reader, behind)), asyncio.create_task(copy(behind_reader, writer))]
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        for job in jobs:
            job.cancel()
        behind.close()
        writer.close()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    server = await asyncio.start_server(serve, host, 0)
    async with server:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_client_and_worker_reach_a_hub_through_the_proxy(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    seen: list[str] = []
    async with RawServer(HEALTHY) as server, proxy(server, seen) as address:
        monkeypatch.setenv(variable, address)
        async with HubClient("http://hub.test:8420") as hub:
            assert await hub.health() == {"status": "ok"}
    assert seen == ["GET http://hub.test:8420/health HTTP/1.1"]
    seen.clear()
    async with RawServer(Registry()) as server, proxy(server, seen) as address:
        monkeypatch.setenv(variable, address)
        async with Lease("echo:a", url="http://127.0.0.1:1/", hub="http://hub.test:8420") as lease:
            await asyncio.wait_for(lease.ready(), 5)
    assert seen[0] == "PUT http://hub.test:8420/registry/agents/echo/a HTTP/1.1"


async def test_an_https_hub_is_reached_through_a_tunnel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, seen = new_authority(tmp_path), list[str]()
    certificate = authority.certificate("hub.test")
    async with RawServer(HEALTHY, tls=certificate.server_context()) as server, proxy(server, seen) as address:
        monkeypatch.setenv("HTTPS_PROXY", address)
        async with HubClient("https://hub.test:8420", ca_file=authority.file) as hub:
            assert await hub.health() == {"status": "ok"}
    assert seen == ["CONNECT hub.test:8420 HTTP/1.1"]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8420", "http://[::1]:8420", "http://localhost:8420", "https://a.localhost"])
def test_no_proxy_is_between_this_machine_and_itself(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://proxy:3128")
    assert proxy_towards(url) is None


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://hub.example.com:8420", "example.com"),
        ("http://hub.example.com:8420", ".example.com"),
        ("http://hub.example.com:8420", "other, hub.example.com:8420"),
        ("http://hub.example.com:8420", "*"),
        ("http://10.1.2.3:8420", "10.1.2.3"),
        ("http://10.1.2.3:8420", "192.168.0.0/16,10.0.0.0/8"),
        ("http://[fd00::5]:8420", "fd00::/8"),
    ],
)
def test_no_proxy_names_hubs_that_are_reached_directly(monkeypatch: pytest.MonkeyPatch, url: str, entry: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert proxy_towards(url) is not None
    monkeypatch.setenv("NO_PROXY", entry)
    assert proxy_towards(url) is None


@pytest.mark.parametrize("entry", ["10.0.0.0/8", "other.com", "nonsense/x", "hub.example.com:1"])
def test_no_proxy_leaves_other_hubs_alone(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", entry)
    for url in ("http://hub.example.com:8420", "http://11.1.2.3:8420"):
        found = proxy_towards(url)
        assert found is not None and (found.url, found.setting) == ("http://proxy:3128", "HTTP_PROXY")


async def test_an_absent_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@127.0.0.1:{port}")
    error = await failure("http://hub.test:8420")
    here = f"http://127.0.0.1:{port}"
    assert str(error) == (
        f"The proxy {here} towards http://hub.test:8420 does not answer: nothing listens there (connection refused)."
    )
    assert error.reason == "PROXY_FAILED"
    assert error.hint == "The proxy comes from HTTP_PROXY. For a direct connection set NO_PROXY=hub.test."


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_is_told_from_a_hub(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    refusal = answer(b"<html>", status="407 Proxy Authentication Required", kind="text/html")
    async with RawServer(always(refusal)) as server:
        monkeypatch.setenv(f"{scheme}_proxy", server.url)
        error = await failure(f"{scheme}://hub.test:8420")
        async with HubClient(f"{scheme}://hub.test:8420") as hub:
            with pytest.raises(RolecallError, match="407"):
                await hub.call("echo", "hi")
    assert (error.reason, "407" in str(error), "hub.test" in error.hint) == ("PROXY_FAILED", True, True)


def test_a_proxy_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@proxy:1080")
    with pytest.raises(ConfigError, match=r"^ALL_PROXY: socks5://proxy:1080 is no http or https proxy") as caught:
        proxy_towards("http://hub.test:8420")
    assert "secret" not in str(caught.value)
