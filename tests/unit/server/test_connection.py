"""The hub's own server and clients that use HTTP well, badly, or not at all. On both event loops."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.helpers.processes import wait_for
from tests.helpers.waiting import until_still
from tests.unit.server.served import LOOP_BY_NAME, PATIENCE, RawClient, RunningServer, running_server

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
CHUNKS = b"POST /%b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=LOOP_BY_NAME)
def shared(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server(request.param) as server:
        yield server


@pytest.fixture
def server(shared: RunningServer) -> RunningServer:
    shared.forget()
    return shared


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    with server.client() as client:
        yield client


def get(path: str) -> bytes:
    return GET % path.encode()


# --- one request after another


def test_pipelined_requests_are_answered_in_order(server: RunningServer, client: RawClient) -> None:
    client.send(b"".join(get(f"{n}") for n in range(2000)))
    for n in range(2000):
        assert client.receive(b"GET /%d 0" % n).startswith(b"HTTP/1.1 200")


def test_a_path_is_decoded_once(server: RunningServer, client: RawClient) -> None:
    client.send(get("a%2525%20b")).receive(b"GET /a%25 b 0")
    assert server.app.asked == ["/a%25 b"]


def test_few_requests_are_buffered_behind_a_slow_one(server: RunningServer, client: RawClient) -> None:
    client.connection.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.send(get("wait") + get("1") * 1_000_000)
    assert server.requests_waiting() < 250
    assert server.app.asked == ["/wait"]


def test_all_requests_behind_a_slow_one_are_answered_in_the_end(server: RunningServer, client: RawClient) -> None:
    client.send(get("wait"), b"".join(get(f"{n}") for n in range(300)))
    wait_for(lambda: server.app.asked == ["/wait"])
    server.release()
    for n in range(300):
        client.receive(b"GET /%d 0" % n)


def test_bodies_behind_a_slow_request_are_not_buffered_and_are_answered_in_the_end(
    server: RunningServer, client: RawClient
) -> None:
    size = 20_000
    requests = b"".join(POST % (b"%d" % n, size) + bytes(size) for n in range(16))
    client.send(get("wait"), requests[:-1])
    wait_for(lambda: server.app.asked == ["/wait"])
    assert until_still(server.bytes_waiting) < 100_000
    server.release()
    client.send(requests[-1:], get("last"))
    for n in range(16):
        client.receive(b"POST /%d %d" % (n, size))
    client.receive(b"GET /last 0")


def test_bodies_that_the_application_does_not_read_do_not_delay_the_next_request(
    server: RunningServer, client: RawClient
) -> None:
    client.send(get("wait"), *(POST % (path, 60_000) + bytes(60_000) for path in (b"early", b"echo")), get("last"))
    wait_for(lambda: server.app.asked == ["/wait"])
    server.release()
    client.receive(b"GET /last 0")


def test_a_client_that_sends_requests_and_reads_nothing_gets_no_further_answers(
    server: RunningServer, client: RawClient
) -> None:
    """Otherwise answers would pile up in memory, even with a limit per answer."""
    client.send(get("large/4000000") * 10)
    wait_for(lambda: bool(server.app.asked) and not len(server.http_server), 10 * PATIENCE)
    assert len(server.app.asked) == 1
    assert client.is_cut() or len(client.received) < 4_000_000


def test_an_answer_in_one_piece_reaches_a_slow_reader(server: RunningServer, client: RawClient) -> None:
    """It takes longer than `patience` in all, but some data is always read in time."""
    size = 3_000_000
    client.send(b"GET /large/%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % size)
    client.receive(b"\r\n\r\n")
    began = time.monotonic()
    assert client.read_with_pauses(20_000, pause=0.006) == size
    assert time.monotonic() - began > 1.5 * PATIENCE


# --- bodies


def test_a_body_is_not_buffered_until_the_application_reads_it(server: RunningServer, client: RawClient) -> None:
    size = 20_000_000
    client.connection.settimeout(0.5)
    sent = 0
    client.send(POST % (b"wait", size))
    with pytest.raises(TimeoutError):
        while sent < size:
            sent += client.connection.send(bytes(65536))
    assert sent < size
    server.release()
    client.connection.settimeout(5)
    client.send(bytes(size - sent))
    client.receive(b"POST /wait %d" % size)
    client.send(get("next")).receive(b"GET /next 0")


def test_a_chunked_body_is_not_buffered_either(server: RunningServer, client: RawClient) -> None:
    chunk = b"3e8\r\n%b\r\n" % bytes(1000)
    client.connection.settimeout(0.5)
    client.send(CHUNKS % b"wait")
    with pytest.raises(TimeoutError):
        client.send(chunk * 20_000)
    assert len(server.app.asked) == 1


def test_many_small_chunks_make_one_body(client: RawClient) -> None:
    client.send(CHUNKS % b"echo", b"1\r\na\r\n" * 5000, b"2;x=y\r\nab\r\n0\r\n\r\n", get("next"))
    client.receive(b"POST /echo 5002")
    client.receive(b"GET /next 0")


def test_a_trailer_is_not_a_header(client: RawClient) -> None:
    client.send(CHUNKS % b"headers", b"1\r\na\r\n0\r\n")
    client.send(b"Authorization: Bearer stolen\r\n\r\n", get("next"))
    assert b"stolen" not in client.receive(b"GET /next 0")


@pytest.mark.parametrize(
    "before",
    [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", GET % b"" + b"GET /", CHUNKS % b"" + b"1\r\na\r\n0\r\nX: ", GET % b"" + b"GET"],
)
def test_an_endless_header_line_is_refused_early(server: RunningServer, client: RawClient, before: bytes) -> None:
    client.send(before)
    try:
        client.send(b"a" * 300_000)
        received = client.receive_all()
    except ConnectionError:
        pytest.fail("the answer was lost")
    assert received.split(b"HTTP/1.1 ")[-1][:3] in (b"431", b"400")
    assert server.counts.reasons


def test_a_malformed_chunk_closes_the_connection(server: RunningServer, client: RawClient) -> None:
    client.send(CHUNKS % b"echo", b"1\r\na\r\n")
    wait_for(lambda: bool(server.app.asked))
    assert client.send(b"nonsense\r\n").receive_all().startswith(b"HTTP/1.1 400")
    assert server.app.disconnected == ["/echo"]


def test_a_client_that_disconnects_within_its_body_is_reported(server: RunningServer) -> None:
    with server.client() as client:
        client.send(POST % (b"echo", 10), b"abc")
        wait_for(lambda: bool(server.app.asked))
    wait_for(lambda: server.app.disconnected == ["/echo"] and not len(server.http_server))


def test_an_answer_before_the_body_is_complete_arrives_and_closes_the_connection(client: RawClient) -> None:
    client.send(POST % (b"early", 10_000_000), bytes(100_000))
    received = client.receive(b"early")
    assert b"connection: close" in received
    client.send(bytes(100_000))
    assert client.receive_all() == b""


# --- less common parts of HTTP


def test_a_client_that_expects_100_continue_gets_it(client: RawClient) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    client.send(head)
    assert client.receive(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc").receive(b"POST /echo 3")
    assert b"100 Continue" not in client.send(head + b"abc").receive(b"POST /echo 3")


def test_a_client_that_expects_100_continue_and_is_refused_gets_only_the_refusal(client: RawClient) -> None:
    client.send(b"POST /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert client.receive(b"no").startswith(b"HTTP/1.1 413")
    client.connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.connection.recv(1)


def test_http_1_0_never_gets_100_continue(client: RawClient) -> None:
    client.send(b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert client.gets_nothing(0.05)
    assert client.send(b"abc").receive_all().startswith(b"HTTP/1.1 200")


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"


def test_an_upgrade_is_ignored(server: RunningServer, client: RawClient) -> None:
    """With the headers that Java's client sends."""
    client.send(b"GET /headers HTTP/1.1\r\nHost: a\r\n" + H2C + b"\r\n")
    received = client.receive(b"\r\n\r\n") + client.received
    assert received.startswith(b"HTTP/1.1 200")
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + H2C + b"\r\nabc" + get("next"))
    client.receive(b"POST /echo 3")
    client.receive(b"GET /next 0")


def test_many_pipelined_upgrades_are_ignored(server: RunningServer, client: RawClient) -> None:
    client.send((b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n") * 3000, get("last"))
    client.receive(b"GET /last 0")
    assert len(server.app.asked) == 3001


def test_http_1_0_gets_answers_in_the_form_of_http_1_0(server: RunningServer) -> None:
    with server.client() as client:
        assert b"connection: close" in client.send(b"GET /echo HTTP/1.0\r\n\r\n").receive_all()
    with server.client() as client:
        for _ in range(2):
            client.send(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"connection: keep-alive" in client.receive(b"GET /echo 0")
    with server.client() as client:
        client.send(b"GET /late HTTP/1.0\r\nConnection: keep-alive\r\nUpgrade: h2c\r\n\r\n")
        received = client.receive(b"some")
        assert b"chunked" not in received
        assert client.is_cut() or b"HTTP" not in client.received


def test_answers_without_a_body_have_none(client: RawClient) -> None:
    for path, status in (("status/204", b"204"), ("status/304", b"304")):
        received = client.send(get(path)).receive(b"\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 " + status)
        assert b"transfer-encoding" not in received
        assert (b"content-length" in received) == (status == b"304")
    received = client.send(get("large/1000").replace(b"GET", b"HEAD")).receive(b"\r\n\r\n")
    assert b"content-length: 1000" in received
    assert client.send(get("next")).receive(b"GET /next 0").startswith(b"HTTP/1.1 200")


def test_the_host_of_an_absolute_url_replaces_the_host_header(client: RawClient) -> None:
    client.send(b"GET http://b:80/headers?x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"host=b:80" in client.receive(b"b:80")
    client.send(b"GET http://b?x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.receive_all().endswith(b"}") and b"400" in client.received


def test_options_for_the_server_itself_is_answered(client: RawClient) -> None:
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").receive(b"HTTP/1.1 200")


# --- malformed input


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\rHost: a\r\r",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ],
)
def test_ambiguous_input_is_refused(server: RunningServer, client: RawClient, data: bytes) -> None:
    received = client.send(data).receive_all()
    assert received.startswith(b"HTTP/1.1 400"), received[:300]
    assert received.count(b"HTTP/1.1") == 1
    assert server.counts.reasons == ["invalid_request"]


def test_empty_lines_before_a_request_and_empty_headers_are_accepted(client: RawClient) -> None:
    client.send(b"\r\n\r\n" + get("one"), b"\r\n" + get("two"))
    client.receive(b"GET /one 0")
    client.receive(b"GET /two 0")
    client.send(b"GET /headers HTTP/1.1\r\nX-Empty:\r\nHost: a\r\n\r\n").receive(b"x-empty=\nhost=a")


@pytest.mark.parametrize("path", ["echo", "wait"])
def test_requests_before_malformed_input_are_answered_first(server: RunningServer, client: RawClient, path: str) -> None:
    client.send(get(path) + get("two") + b"\0nonsense\r\n\r\n")
    server.release()
    received = client.receive_all()
    statuses = [piece[:3] for piece in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"400"]
    assert received.count(b"connection: close") == 1


def test_malformed_input_after_connection_close_is_ignored(client: RawClient) -> None:
    client.send(get("one").replace(b"Host", b"Connection: close\r\nHost") + b"nonsense\r\n\r\n")
    received = client.receive_all()
    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"HTTP/1.1") == 1
