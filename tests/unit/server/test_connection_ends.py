"""How a connection to the hub's own server ends: by its caller, by an error, by the clock, by the hub that goes."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hub.server.connection import ServerConnection
from tests.helpers.processes import wait_for
from tests.unit.server.served import LOOPS, PATIENCE, Caller, House, open_house
from tests.unit.server.test_connection import CHUNKS, POST, get


@pytest.fixture(params=LOOPS)
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    with open_house(request.param, head_within=0.3, idle_for=0.6) as house:
        yield house


@pytest.fixture
def caller(house: House) -> Iterator[Caller]:
    with house.caller() as caller:
        yield caller


# --- callers who stop talking, or leave


@pytest.mark.parametrize("path", ["echo", "wait"])
def test_who_has_said_all_is_answered(house: House, caller: Caller, path: str) -> None:
    """All of it, however fast the end came behind it."""
    caller.say(get(path) + get("two") + get("three")).done_talking()
    house.let_go()
    heard = caller.rest()
    assert heard.count(b"HTTP/1.1 200") == 3
    assert heard.count(b"connection: close") <= 1


def test_who_has_said_all_but_the_end_of_a_request_is_answered_the_rest(house: House, caller: Caller) -> None:
    caller.say(get("wait") + POST % (b"echo", 10) + b"abc").done_talking()
    wait_for(lambda: house.desk.asked == ["/wait"])
    house.let_go()
    assert caller.rest().count(b"HTTP/1.1 200") == 1
    assert house.desk.asked == ["/wait"]


def test_who_says_nothing_or_not_enough_and_ends_is_let_go(house: House) -> None:
    for said in (b"", b"GET / HT", POST % (b"echo", 10) + b"abc", CHUNKS % b"echo" + b"1\r\n"):
        with house.caller() as caller:
            assert caller.say(said).done_talking().rest() == b""


def test_who_leaves_while_he_is_answered_is_not_written_to(house: House) -> None:
    with house.caller() as caller:
        caller.say(get("stream")).hear(b"x" * 8000)
        caller.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: house.desk.left == ["/stream"] and not len(house.http_server))


def test_who_ends_in_the_middle_of_a_quiet_stream_is_missed_at_once(house: House, caller: Caller) -> None:
    caller.say(get("quiet")).hear(b"word")
    caller.done_talking()
    wait_for(lambda: house.desk.left == ["/quiet"] and not len(house.http_server))


def test_who_leaves_while_he_waits_is_told_of(house: House) -> None:
    with house.caller() as caller:
        caller.say(get("patient"))
        wait_for(lambda: house.desk.asked == ["/patient"])
        caller.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: house.desk.left == ["/patient", "/patient"])


def test_who_has_said_all_has_left_when_he_has_waited_for_too_long(house: House, caller: Caller) -> None:
    """To end one's side and to end both looks the same from here."""
    began = time.monotonic()
    caller.say(get("patient")).done_talking()
    wait_for(lambda: house.desk.left == ["/patient", "/patient"], 10 * PATIENCE)
    assert time.monotonic() - began > 0.9 * PATIENCE


def test_who_stays_until_he_is_answered_has_not_left(house: House, caller: Caller) -> None:
    caller.say(get("patient"))
    house.let_go()
    caller.hear(b"GET /patient 0")
    time.sleep(0.05)
    assert house.desk.left == []


def test_who_ends_while_a_long_page_is_on_its_way_gets_all_of_it(house: House, caller: Caller) -> None:
    caller.say(get("one")).hear(b"GET /one 0")
    house.narrow_the_lines()
    caller.say(get("page/200000")).hear(b"\r\n\r\n")
    caller.done_talking()
    heard = len(caller.heard)
    while piece := caller.line.recv(1500):
        heard += len(piece)
        time.sleep(0.001)
    assert heard == 200_000


def test_who_takes_nothing_any_more_is_cut_and_what_was_for_him_is_gone(house: House, caller: Caller) -> None:
    """At once, and without the collector of cycles."""
    caller.say(get("stream")).hear(b"x" * 8000)
    stopped = time.monotonic()
    (line,) = [weakref.ref(line) for line in house.http_server._lines]
    gc.disable()
    try:
        wait_for(lambda: house.desk.left == ["/stream"] and not len(house.http_server), 10 * PATIENCE)
        assert time.monotonic() - stopped > 0.9 * PATIENCE
        wait_for(lambda: line() is None)
    finally:
        gc.enable()
    assert house.desk.written < 20_000_000


def test_an_answer_that_nobody_takes_does_not_hold_the_line(house: House, caller: Caller) -> None:
    caller.say(get("big/20000000").replace(b"Host", b"Connection: close\r\nHost"))
    wait_for(lambda: house.unsent() > 1_000_000)
    wait_for(lambda: not len(house.http_server), 10 * PATIENCE)


# --- the clock


@pytest.mark.parametrize("before", [b"", b"\r\n", b"GET /", b"GET / HTTP/1.1\r\nX: a"])
def test_a_head_has_to_come_in_time(caller: Caller, before: bytes) -> None:
    caller.say(before)
    began = time.monotonic()
    assert caller.rest() == b""
    assert 0.2 < time.monotonic() - began < 2


@pytest.mark.parametrize("drip", [b"a", b"\r\n"])
def test_a_head_that_drips_has_no_more_time(caller: Caller, drip: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(ConnectionError):
        for _ in range(100):
            caller.say(drip)
            time.sleep(0.05)
    assert time.monotonic() - began < 2


def test_a_line_on_which_nothing_is_said_is_closed(caller: Caller) -> None:
    caller.say(get("one")).hear(b"GET /one 0")
    began = time.monotonic()
    assert caller.rest() == b""
    assert 0.5 < time.monotonic() - began < 3


# --- errors of the application


def test_an_error_before_the_answer_is_an_answer(caller: Caller) -> None:
    heard = caller.say(get("broken") + get("two")).rest()
    assert heard.startswith(b"HTTP/1.1 500")
    assert b"purpose" not in heard
    assert heard.count(b"HTTP/1.1") == 1


def test_a_header_that_would_be_two_is_an_error(caller: Caller) -> None:
    heard = caller.say(get("split")).rest()
    assert heard.startswith(b"HTTP/1.1 500")
    assert b"set-cookie" not in heard


def test_an_error_after_the_answer_began_looks_like_one(caller: Caller) -> None:
    caller.say(get("late")).hear(b"some")
    assert caller.is_cut() or b"0\r\n\r\n" not in caller.heard


def test_an_answer_that_is_shorter_than_it_said_ends_the_line_and_one_that_is_longer_is_cut(caller: Caller) -> None:
    heard = caller.say(get("said/5/10") + get("said/10/5") + get("two")).rest()
    assert heard.count(b"HTTP/1.1") == 2
    assert b"\r\n\r\nxxxxxHTTP/1.1 200" in heard
    assert heard.endswith(b"\r\n\r\nxxxxx")


@pytest.mark.parametrize("path", ["silent", "cancelled"])
def test_an_application_that_says_nothing_does_not_hold_the_line(house: House, caller: Caller, path: str) -> None:
    caller.say(get(path))
    assert caller.is_cut() or caller.heard == b""
    wait_for(lambda: not len(house.http_server))


# --- the hub that goes


@pytest.mark.parametrize("more", [b"", get("x"), get("x") * 3000])
def test_what_is_asked_after_it_was_said_that_the_line_closes_is_not_done(house: House, caller: Caller, more: bytes) -> None:
    caller.say(get("farewell") + more)
    wait_for(lambda: bool(house.desk.asked))
    time.sleep(0.05)
    caller.say(POST % (b"effect", 2) + b"hi")
    heard = caller.rest()
    assert heard.count(b"HTTP/1.1 ") == 1
    assert len(heard.partition(b"\r\n\r\n")[2]) == 6_000_000
    assert house.desk.asked == ["/farewell"]


def test_who_gets_in_as_the_doors_close_is_not_served(house: House) -> None:
    """The system says yes to a caller before the server hears of him."""
    ours, theirs = socket.socketpair()

    async def come_late() -> None:
        await house.http_server.close(1)
        await house.loop.connect_accepted_socket(lambda: ServerConnection(house.http_server, house.loop), ours)

    with theirs:
        theirs.settimeout(2)
        theirs.sendall(get("late"))
        asyncio.run_coroutine_threadsafe(come_late(), house.loop).result(5)
        with suppress(ConnectionError):
            assert theirs.recv(1000) == b""
        wait_for(lambda: not len(house.http_server))
    assert house.desk.asked == []


def test_a_hub_that_goes_answers_what_it_was_asked_and_nothing_else(house: House) -> None:
    with house.caller() as idle, house.caller() as busy, house.caller() as streaming, house.caller() as halfway:
        idle.say(get("one")).hear(b"GET /one 0")
        halfway.say(b"GET / HTTP")
        streaming.say(get("stream")).hear(b"x" * 8000)
        busy.say(get("wait") + get("two"))
        wait_for(lambda: "/wait" in house.desk.asked)
        closing = house.close(0.4)
        assert idle.rest() == halfway.rest() == b""
        house.let_go()
        heard = busy.rest()
        assert heard.count(b"HTTP/1.1 200") == 2
        assert heard.count(b"connection: close") == 1
        closing.result(5)
        assert streaming.is_cut() or streaming.heard
        assert not len(house.http_server)
        with pytest.raises(ConnectionError):
            house.caller()


# --- how many


def test_one_more_than_there_is_room_for_is_told_so_and_served_when_somebody_has_left() -> None:
    with open_house("uvloop", most=3) as house:
        first, *others = [house.caller().say(get("one")) for _ in range(3)]
        for one in (first, *others):
            one.hear(b"GET /one 0")
        assert house.counts.open == 3
        with house.caller() as fourth:
            heard = fourth.say(get("one")).rest()
        assert heard.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5\r\n" in heard
        assert b"connection: close\r\n" in heard
        assert b"ROLECALL_MAX_CONNECTIONS" in heard
        assert house.counts.reasons == ["overloaded"]
        refused = [house.caller() for _ in range(3)]
        for one in refused:
            one.hear(b"HTTP/1.1 503")
        with house.caller() as beyond:
            assert beyond.is_cut() or beyond.heard == b""
        assert house.counts.open == 3
        first.line.close()
        wait_for(lambda: house.counts.open == 2)
        with house.caller() as next_one:
            next_one.say(get("one")).hear(b"GET /one 0")
            assert house.counts.open == 3
        for one in (*others, *refused):
            one.line.close()
        wait_for(lambda: house.counts.open == 0)
