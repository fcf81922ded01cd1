"""The HTTP client against scripted servers on real sockets: the pool, and the error for each failure."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import suppress

import pytest

from hub.core.shares.share import WorkspaceShare
from hub.outbound.client import Client, ClientLimits
from hub.outbound.connection import Response
from hub.outbound.forwarder import HttpForwarder
from hub.outbound.url import ParsedUrl
from hub.outbound.worker_guard import Guard
from rolecall.errors import (
    HubError,
    InvalidAnswer,
    NoDescriptors,
    Overloaded,
    WorkerBroke,
    WorkerFull,
    WorkerRefused,
    WorkerUnreachable,
)
from rolecall.model.a2a import Ids
from rolecall.model.ids import TaskId, WorkerId
from rolecall.model.worker import Offer
from tests.helpers.cycles import no_cycles_of
from tests.helpers.listening import ask
from tests.helpers.raw_server import Peer, RawServer, all_read, always, answer, chunk, chunked_head

GUARD = Guard([], [], allow_loopback=True)
BODY = b'{"a": 1}'

pytestmark = pytest.mark.virtual_time


async def body_of(client: Client, url: str) -> bytes:
    return await (await ask(client, url, BODY)).read_all()


# --- the pool


async def test_a_connection_is_reused(client: Client) -> None:
    async with RawServer(always(answer(BODY))) as server:
        for _ in range(5):
            assert await body_of(client, server.url) == BODY
        assert [len(peer.requests) for peer in server.peers] == [5]


async def test_head_and_body_are_one_request_with_only_our_headers(client: Client) -> None:
    async with RawServer(always(answer(BODY))) as server:
        response = await ask(client, server.url + "a2a?x=1", BODY, headers=[("traceparent", "00-1")])
        response.close()
        (request,) = server.requests
    assert request.line == "POST /a2a?x=1 HTTP/1.1"
    assert request.body == BODY
    assert request.headers.pop("user-agent").startswith("rolecall/")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "content-length": "8",
        "accept": "application/json",
        "accept-encoding": "identity",
        "traceparent": "00-1",
    }


async def test_concurrent_calls_use_a_connection_each_and_the_last_released_is_used_first(client: Client) -> None:
    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await asyncio.sleep(0.02 * peer.number)
            await peer.write(answer(b"%d" % peer.number))

    async with RawServer(script) as server:
        assert sorted(await asyncio.gather(*(body_of(client, server.url) for _ in range(3)))) == [b"1", b"2", b"3"]
        assert [await body_of(client, server.url) for _ in range(2)] == [b"3", b"3"]
        assert len(server.peers) == 3


@pytest.mark.parametrize(
    "data",
    [
        answer(BODY, more="Connection: close\r\n"),
        answer(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
        answer(BODY) + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        answer(BODY) + b"garbage",
    ],
)
async def test_a_connection_with_close_or_surplus_bytes_is_not_reused(client: Client, data: bytes) -> None:
    async with RawServer(always(data)) as server:
        for _ in range(2):
            assert await body_of(client, server.url) == BODY
        assert [len(peer.requests) for peer in server.peers] == [1, 1]


async def test_a_connection_with_unexpected_bytes_while_idle_is_not_reused(client: Client) -> None:
    answered, sent = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(b"%d" % peer.number))
        await answered.wait()
        await peer.write(answer(b"poison"))
        sent.set()
        await peer.gone()

    async with RawServer(script) as server:
        assert await body_of(client, server.url) == b"1"
        answered.set()
        await sent.wait()
        await all_read()
        async with asyncio.timeout(10):
            assert await body_of(client, server.url) == b"2"


async def test_a_connection_that_the_peer_closed_while_idle_is_not_reused(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(b"%d" % peer.number))

    async with RawServer(script) as server:
        for number in (b"1", b"2", b"3"):
            assert await body_of(client, server.url) == number
            await asyncio.sleep(0.02)


async def test_idle_connections_are_closed_after_a_timeout() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(BODY))
        await peer.gone()
        gone.set()

    async with RawServer(script) as server, Client(GUARD, ClientLimits(idle=0.05)) as client:
        await body_of(client, server.url)
        async with asyncio.timeout(1):
            await gone.wait()
        await body_of(client, server.url)
        assert len(server.peers) == 2


async def test_above_the_limit_of_an_origin_nothing_is_sent() -> None:
    async with RawServer(always(chunked_head())) as server, Client(GUARD, ClientLimits(per_origin=2)) as client:
        responses = [await ask(client, server.url, BODY) for _ in range(2)]
        with pytest.raises(WorkerFull, match=r"2 connections open to .*\(ROLECALL_MAX_CONNECTIONS_PER_WORKER\)"):
            await ask(client, server.url, BODY)
        assert len(server.requests) == 2
        responses.pop().close()
        await asyncio.sleep(0.02)
        (await ask(client, server.url, BODY)).close()


async def test_above_the_overall_limit_an_idle_connection_is_closed() -> None:
    async with (
        RawServer(always(answer(BODY))) as first,
        RawServer(always(chunked_head())) as second,
        Client(GUARD, ClientLimits(overall=2)) as client,
    ):
        await body_of(client, first.url)
        for _ in range(2):
            await ask(client, second.url, BODY)
        with pytest.raises(Overloaded):
            await ask(client, second.url, BODY)
        with pytest.raises(Overloaded):
            await ask(client, first.url, BODY)


async def test_failed_connections_do_not_count() -> None:
    async with RawServer(always(answer(BODY))) as server:
        pass
    async with Client(GUARD, ClientLimits(per_origin=1, overall=1)) as client:
        for _ in range(3):
            with pytest.raises(WorkerUnreachable, match="connection refused"):
                await body_of(client, server.url)
        async with RawServer(always(answer(BODY))) as other:
            assert await body_of(client, other.url) == BODY


# --- what a workspace holds


def share(limit: int = 3, per_workspace: int = 2) -> WorkspaceShare:
    return WorkspaceShare("connections to workers", "max_worker_connections", limit, per_workspace)


async def test_a_workspace_with_all_its_connections_is_refused_with_its_setting_and_another_is_not() -> None:
    held = share()
    async with RawServer(always(chunked_head())) as server, Client(GUARD, share=held) as client:
        responses = [await ask(client, server.url, BODY, workspace="a") for _ in range(2)]
        with pytest.raises(Overloaded, match=r"^This workspace holds 2 connections .*_CONNECTIONS_PER_WORKSPACE\)"):
            await ask(client, server.url, BODY, workspace="a")
        await ask(client, server.url, BODY, workspace="b")
        with pytest.raises(Overloaded, match=r"^The hub holds 3 connections .*MAX_WORKER_CONNECTIONS\)"):
            await ask(client, server.url, BODY, workspace="b")
        responses.pop().close()
        await asyncio.sleep(0.02)
        await ask(client, server.url, BODY, workspace="b")
        assert (held.use.used, held.use.largest) == (3, 2)
    assert held.use.used == 0


async def test_an_idle_connection_belongs_to_nobody_and_makes_room_for_another_workspace() -> None:
    held = share(1, 1)
    async with (
        RawServer(always(answer(BODY))) as server,
        Client(GUARD, ClientLimits(overall=1), share=held) as client,
    ):
        for workspace in ("a", "a", "b", "a"):
            response = await ask(client, server.url, BODY, workspace=workspace)
            assert held.use.used <= 1
            assert await response.read_all() == BODY
            assert held.use.used == 0
        assert [len(peer.requests) for peer in server.peers] == [2, 1, 1]


async def test_the_limit_of_one_server_counts_each_workspace_by_itself() -> None:
    async with RawServer(always(chunked_head())) as server, Client(GUARD, ClientLimits(per_origin=1)) as client:
        for workspace in ("a", "b"):
            await ask(client, server.url, BODY, workspace=workspace)
            with pytest.raises(WorkerFull):
                await ask(client, server.url, BODY, workspace=workspace)


async def test_whatever_becomes_of_a_call_its_connection_is_given_back() -> None:
    held = share(1, 1)

    async def closes(peer: Peer) -> None:
        await peer.read_request()

    async with (
        RawServer(closes) as cut,
        RawServer(always(chunked_head())) as endless,
        RawServer(always(b"HTTP/1.1 nonsense\r\n\r\n")) as broken,
        RawServer(always(answer(BODY, more="Connection: close\r\n"))) as closing,
        Client(GUARD, ClientLimits(per_origin=1, idle=0.05), share=held) as client,
    ):
        for url, error in (
            (cut.url, WorkerBroke),
            (broken.url, InvalidAnswer),
            ("http://127.0.0.1:1/", WorkerUnreachable),
            ("http://169.254.169.254/", WorkerUnreachable),
        ):
            with pytest.raises(error):
                await ask(client, url, BODY)
            assert held.use.used == 0, url
        for url in (endless.url, endless.url):
            (await ask(client, url, BODY)).close()
            await asyncio.sleep(0.02)
            assert held.use.used == 0
        connecting = asyncio.create_task(ask(client, endless.url, BODY))
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        await asyncio.sleep(0)
        assert held.use.used == 0
        assert await body_of(client, closing.url) == BODY
        await asyncio.sleep(0.1)
        assert held.use.used == 0


async def test_an_idle_connection_that_has_expired_or_was_closed_gives_nothing_back_twice() -> None:
    held = share(2, 2)
    async with RawServer(always(answer(BODY))) as server, Client(GUARD, ClientLimits(idle=0.05), share=held) as client:
        for pause in (0.0, 0.1, 0.0):
            await body_of(client, server.url)
            await asyncio.sleep(pause)
            assert held.use.used == 0


async def test_a_call_that_fails_is_freed_at_once() -> None:
    held = share(1, 1)
    async with RawServer(always(chunked_head())) as server, Client(GUARD, share=held) as client:
        (await ask(client, server.url, BODY)).close()
        await asyncio.sleep(0.02)
        with no_cycles_of(HubError, OSError, Response):
            for full in (False, True):
                if full:
                    held.take("")
                for url in (server.url, "http://127.0.0.1:1/", "http://169.254.169.254/", "http://[::1/"):
                    with suppress(HubError):
                        await post(client, url)
                    with suppress(HubError):
                        await HttpForwarder(client).fetch("", Offer(WorkerId("echo", "1"), url), Ids(TaskId("t"), "c", "w"))
                await asyncio.sleep(0.05)
            held.give_back("")


async def post(client: Client, url: str) -> None:
    response = await client.post(url, BODY, worker="w", media=b"a/b", accept=b"*/*", headers=())
    response.close()


class _NoDescriptors:
    """A policy of a process without descriptors, and who hears of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reports: list[str] = []

    async def addresses(self, target: ParsedUrl, workspace: str) -> Sequence[tuple[int, str]]:
        raise OSError(self.number, "Too many open files")

    def none_left(self, where: str) -> None:
        self.reports.append(where)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_a_worker_is_not_blamed_for_the_hubs_lack_of_descriptors(number: int) -> None:
    without, held = _NoDescriptors(number), share()
    async with Client(without, share=held, descriptors=without) as client:
        with pytest.raises(NoDescriptors, match="ROLECALL_MAX_CONNECTIONS"):
            await ask(client, "http://worker.example/", BODY)
        with pytest.raises(NoDescriptors):
            await client.probe("http://worker.example/", 1.0)
    assert (len(without.reports), held.use.used) == (2, 0)


async def test_closing_the_client_closes_every_connection() -> None:
    gone: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() if peer.number == 1 else answer(BODY))
        await peer.gone()
        gone.append(peer.number)

    async with RawServer(script) as server:
        client = Client(GUARD)
        open_ended = await ask(client, server.url, BODY)
        complete = await ask(client, server.url, BODY)
        waiting = asyncio.create_task(open_ended.read_all(), name="reader")
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(WorkerBroke):
            await waiting
        assert await complete.read_all() == BODY
        await asyncio.sleep(0.02)
        assert sorted(gone) == [1, 2]
        with pytest.raises(WorkerRefused):
            await body_of(client, server.url)


# --- cut connections


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_fresh_connection_that_dies_without_an_answer_may_have_run_the_call(
    client: Client, reads: bool, how: str
) -> None:
    async def script(peer: Peer) -> None:
        await (peer.read_request() if reads else peer.reader.read(1))
        if how == "reset":
            peer.reset()

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke):
            await body_of(client, server.url)
        assert len(server.peers) == 1


async def test_a_call_on_a_reused_connection_that_dies_is_not_retried(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(BODY))
        await peer.read_request()

    async with RawServer(script) as server:
        await body_of(client, server.url)
        with pytest.raises(WorkerBroke, match="without an answer"):
            await body_of(client, server.url)
        assert len(server.peers) == 1
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "data", [answer(BODY)[:-1], answer(BODY)[:20], chunked_head() + chunk(b"x"), chunked_head() + b"5\r\nab"]
)
async def test_an_incomplete_answer_is_reported_as_cut(client: Client, data: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(data)

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke, match="cut off"):
            await body_of(client, server.url)


async def test_bytes_before_the_cut_are_returned_first(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(b"one") + chunk(b"two"))

    async with RawServer(script) as server:
        response = await ask(client, server.url, BODY)
        await asyncio.sleep(0.02)
        assert response.body == b"onetwo"
        with pytest.raises(WorkerBroke):
            await response.read_all()


async def test_a_body_without_a_length_ends_with_the_connection(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with RawServer(script) as server:
        assert await body_of(client, server.url) == b"all of it"


async def test_a_peer_that_does_not_read_the_request_times_out() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()
        await asyncio.sleep(5)

    async with RawServer(script) as server, Client(GUARD, ClientLimits(write=0.1)) as client:
        with pytest.raises(WorkerBroke, match="taken the call"):
            await ask(client, server.url, b"x" * 50_000_000)


async def test_a_cancelled_call_closes_its_connection(client: Client) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        call = asyncio.create_task(body_of(client, server.url), name="call")
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(1):
            await gone.wait()
