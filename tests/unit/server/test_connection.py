"""The hub's own server, asked by callers who know HTTP well, badly, or not at all. On both event loops."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.helpers.processes import wait_for
from tests.unit.server.served import LOOPS, PATIENCE, Caller, House, open_house

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
CHUNKS = b"POST /%b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=LOOPS)
def shared(request: pytest.FixtureRequest) -> Iterator[House]:
    with open_house(request.param) as house:
        yield house


@pytest.fixture
def house(shared: House) -> House:
    shared.forget()
    return shared


@pytest.fixture
def caller(house: House) -> Iterator[Caller]:
    with house.caller() as caller:
        yield caller


def get(path: str) -> bytes:
    return GET % path.encode()


# --- one request after the other


def test_a_crowd_of_requests_in_one_go_is_answered_in_order(house: House, caller: Caller) -> None:
    caller.say(b"".join(get(f"{n}") for n in range(2000)))
    for n in range(2000):
        assert caller.hear(b"GET /%d 0" % n).startswith(b"HTTP/1.1 200")


def test_what_comes_behind_a_request_that_takes_long_is_hardly_kept(house: House, caller: Caller) -> None:
    caller.line.settimeout(0.3)
    with pytest.raises(TimeoutError):
        caller.say(get("wait") + get("1") * 1_000_000)
    assert house.requests_held() < 250
    assert house.desk.asked == ["/wait"]


def test_a_crowd_behind_a_request_that_takes_long_is_answered_in_the_end(house: House, caller: Caller) -> None:
    caller.say(get("wait"), b"".join(get(f"{n}") for n in range(300)))
    wait_for(lambda: house.desk.asked == ["/wait"])
    house.let_go()
    for n in range(300):
        caller.hear(b"GET /%d 0" % n)


def test_bodies_behind_a_request_that_takes_long_wait_outside_and_are_answered_in_the_end(house: House, caller: Caller) -> None:
    size = 20_000
    crowd = b"".join(POST % (b"%d" % n, size) + bytes(size) for n in range(16))
    caller.say(get("wait"), crowd[:-1])
    wait_for(lambda: house.desk.asked == ["/wait"])
    time.sleep(0.1)
    assert house.bytes_held() < 100_000
    house.let_go()
    caller.say(crowd[-1:], get("last"))
    for n in range(16):
        caller.hear(b"POST /%d %d" % (n, size))
    caller.hear(b"GET /last 0")


def test_bodies_that_nobody_reads_do_not_hold_up_the_next_request(house: House, caller: Caller) -> None:
    caller.say(get("wait"), *(POST % (path, 60_000) + bytes(60_000) for path in (b"early", b"echo")), get("last"))
    wait_for(lambda: house.desk.asked == ["/wait"])
    house.let_go()
    caller.hear(b"GET /last 0")


def test_who_asks_on_and_on_and_takes_nothing_is_not_answered_on_and_on(house: House, caller: Caller) -> None:
    """The answers would pile up in memory, whatever is done about one answer."""
    caller.say(get("big/4000000") * 10)
    wait_for(lambda: bool(house.desk.asked) and not len(house.http_server), 10 * PATIENCE)
    assert len(house.desk.asked) == 1
    assert caller.is_cut() or len(caller.heard) < 4_000_000


def test_an_answer_in_one_piece_reaches_a_reader_who_takes_his_time(house: House, caller: Caller) -> None:
    """Longer in all than patience lasts; he does take some."""
    size = 3_000_000
    caller.say(b"GET /big/%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % size)
    caller.hear(b"\r\n\r\n")
    heard = len(caller.heard)
    began = time.monotonic()
    while piece := caller.line.recv(20_000):
        heard += len(piece)
        time.sleep(0.006)
    assert heard == size
    assert time.monotonic() - began > 1.5 * PATIENCE


# --- bodies


def test_a_body_waits_outside_until_somebody_wants_it(house: House, caller: Caller) -> None:
    size = 20_000_000
    caller.line.settimeout(0.5)
    sent = 0
    caller.say(POST % (b"wait", size))
    with pytest.raises(TimeoutError):
        while sent < size:
            sent += caller.line.send(bytes(65536))
    assert sent < size
    house.let_go()
    caller.line.settimeout(5)
    caller.say(bytes(size - sent))
    caller.hear(b"POST /wait %d" % size)
    caller.say(get("next")).hear(b"GET /next 0")


def test_a_body_in_chunks_waits_outside_as_well(house: House, caller: Caller) -> None:
    chunk = b"3e8\r\n%b\r\n" % bytes(1000)
    caller.line.settimeout(0.5)
    caller.say(CHUNKS % b"wait")
    with pytest.raises(TimeoutError):
        caller.say(chunk * 20_000)
    assert len(house.desk.asked) == 1


def test_chunks_however_small_make_one_body(caller: Caller) -> None:
    caller.say(CHUNKS % b"echo", b"1\r\na\r\n" * 5000, b"2;x=y\r\nab\r\n0\r\n\r\n", get("next"))
    caller.hear(b"POST /echo 5002")
    caller.hear(b"GET /next 0")


def test_a_trailer_is_no_header(caller: Caller) -> None:
    caller.say(CHUNKS % b"heads", b"1\r\na\r\n0\r\n")
    caller.say(b"Authorization: Bearer stolen\r\n\r\n", get("next"))
    assert b"stolen" not in caller.hear(b"GET /next 0")


@pytest.mark.parametrize(
    "before",
    [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", GET % b"" + b"GET /", CHUNKS % b"" + b"1\r\na\r\n0\r\nX: ", GET % b"" + b"GET"],
)
def test_a_line_without_an_end_is_refused_before_it_costs_much(house: House, caller: Caller, before: bytes) -> None:
    caller.say(before)
    try:
        caller.say(b"a" * 300_000)
        heard = caller.rest()
    except ConnectionError:
        pytest.fail("the answer was lost")
    assert heard.split(b"HTTP/1.1 ")[-1][:3] in (b"431", b"400")
    assert house.counts.reasons


def test_a_body_that_ends_in_nonsense_ends_the_line(house: House, caller: Caller) -> None:
    caller.say(CHUNKS % b"echo", b"1\r\na\r\n")
    wait_for(lambda: bool(house.desk.asked))
    assert caller.say(b"nonsense\r\n").rest().startswith(b"HTTP/1.1 400")
    assert house.desk.left == ["/echo"]


def test_who_leaves_in_the_middle_of_his_body_is_not_waited_for(house: House) -> None:
    with house.caller() as caller:
        caller.say(POST % (b"echo", 10), b"abc")
        wait_for(lambda: bool(house.desk.asked))
    wait_for(lambda: house.desk.left == ["/echo"] and not len(house.http_server))


def test_an_answer_before_the_body_is_whole_arrives_and_ends_the_line(caller: Caller) -> None:
    caller.say(POST % (b"early", 10_000_000), bytes(100_000))
    heard = caller.hear(b"early")
    assert b"connection: close" in heard
    caller.say(bytes(100_000))
    assert caller.rest() == b""


# --- what a client may ask for besides


def test_who_waits_to_be_told_to_go_on_is_told(caller: Caller) -> None:
    head = b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    caller.say(head)
    assert caller.hear(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    caller.say(b"abc").hear(b"POST /echo 3")
    assert b"100 Continue" not in caller.say(head + b"abc").hear(b"POST /echo 3")


def test_who_waits_and_is_refused_hears_nothing_else(caller: Caller) -> None:
    caller.say(b"POST /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert caller.hear(b"no").startswith(b"HTTP/1.1 413")
    caller.line.settimeout(0.2)
    with pytest.raises(TimeoutError):
        caller.line.recv(1)


def test_http_1_0_is_never_told_to_go_on(caller: Caller) -> None:
    caller.say(b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    time.sleep(0.05)
    assert caller.say(b"abc").rest().startswith(b"HTTP/1.1 200")


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"


def test_an_offer_to_upgrade_is_not_taken(house: House, caller: Caller) -> None:
    """As Java's client makes it."""
    caller.say(b"GET /heads HTTP/1.1\r\nHost: a\r\n" + H2C + b"\r\n")
    heard = caller.hear(b"\r\n\r\n") + caller.heard
    assert heard.startswith(b"HTTP/1.1 200")
    caller.say(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + H2C + b"\r\nabc" + get("next"))
    caller.hear(b"POST /echo 3")
    caller.hear(b"GET /next 0")


def test_a_crowd_of_offers_to_upgrade_is_not_taken_either(house: House, caller: Caller) -> None:
    caller.say((b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n") * 3000, get("last"))
    caller.hear(b"GET /last 0")
    assert len(house.desk.asked) == 3001


def test_http_1_0_gets_its_own_version_of_everything(house: House) -> None:
    with house.caller() as caller:
        assert b"connection: close" in caller.say(b"GET /echo HTTP/1.0\r\n\r\n").rest()
    with house.caller() as caller:
        for _ in range(2):
            caller.say(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert b"connection: keep-alive" in caller.hear(b"GET /echo 0")
    with house.caller() as caller:
        caller.say(b"GET /late HTTP/1.0\r\nConnection: keep-alive\r\nUpgrade: h2c\r\n\r\n")
        heard = caller.hear(b"some")
        assert b"chunked" not in heard
        assert caller.is_cut() or b"HTTP" not in caller.heard


def test_answers_without_a_body_have_none(caller: Caller) -> None:
    for path, status in (("status/204", b"204"), ("status/304", b"304")):
        heard = caller.say(get(path)).hear(b"\r\n\r\n")
        assert heard.startswith(b"HTTP/1.1 " + status)
        assert b"transfer-encoding" not in heard
        assert (b"content-length" in heard) == (status == b"304")
    heard = caller.say(get("big/1000").replace(b"GET", b"HEAD")).hear(b"\r\n\r\n")
    assert b"content-length: 1000" in heard
    assert caller.say(get("next")).hear(b"GET /next 0").startswith(b"HTTP/1.1 200")


def test_whole_addresses_name_the_host(caller: Caller) -> None:
    caller.say(b"GET http://b:80/heads?x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"host=b:80" in caller.hear(b"b:80")
    caller.say(b"GET http://b?x HTTP/1.1\r\nHost: a\r\n\r\n")
    assert caller.rest().endswith(b"}") and b"400" in caller.heard


def test_a_question_about_the_server_itself_is_answered(caller: Caller) -> None:
    caller.say(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").hear(b"HTTP/1.1 200")


# --- what is no request


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
def test_what_can_be_read_in_two_ways_is_no_request(house: House, caller: Caller, data: bytes) -> None:
    heard = caller.say(data).rest()
    assert heard.startswith(b"HTTP/1.1 400"), heard[:300]
    assert heard.count(b"HTTP/1.1") == 1
    assert house.counts.reasons == ["invalid_request"]


def test_empty_lines_before_a_request_and_empty_headers_do_no_harm(caller: Caller) -> None:
    caller.say(b"\r\n\r\n" + get("one"), b"\r\n" + get("two"))
    caller.hear(b"GET /one 0")
    caller.hear(b"GET /two 0")
    caller.say(b"GET /heads HTTP/1.1\r\nX-Empty:\r\nHost: a\r\n\r\n").hear(b"x-empty=\nhost=a")


@pytest.mark.parametrize("path", ["echo", "wait"])
def test_what_came_before_nonsense_is_answered_first(house: House, caller: Caller, path: str) -> None:
    caller.say(get(path) + get("two") + b"\0nonsense\r\n\r\n")
    house.let_go()
    heard = caller.rest()
    statuses = [piece[:3] for piece in heard.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"400"]
    assert heard.count(b"connection: close") == 1


def test_nonsense_after_a_request_that_was_the_last_is_let_be(caller: Caller) -> None:
    caller.say(get("one").replace(b"Host", b"Connection: close\r\nHost") + b"nonsense\r\n\r\n")
    heard = caller.rest()
    assert heard.startswith(b"HTTP/1.1 200")
    assert heard.count(b"HTTP/1.1") == 1
