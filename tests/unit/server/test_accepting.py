"""Connections that are accepted one by one, as on Windows."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hub.server import http_server
from hub.server.accepting import next_connection
from tests.acceptance.windows.stand_in import ENV
from tests.helpers.processes import environment
from tests.unit.server.served import LOOP_BY_NAME, RunningServer, running_server
from tests.unit.server.test_connection import get


@pytest.fixture(params=LOOP_BY_NAME)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.setattr(http_server, "ONE_BY_ONE", True)
    with running_server(request.param) as server:
        yield server


def test_on_windows_all_are_accepted_so() -> None:
    script = "from hub.server.http_server import ONE_BY_ONE; print(ONE_BY_ONE)"
    for env, expected in ((ENV, "True"), ({}, str(sys.platform == "win32"))):
        done = subprocess.run([sys.executable, "-c", script], env=environment(env), capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_each_is_served_and_sent_small_writes_at_once(server: RunningServer) -> None:
    for _ in range(3):
        with server.client() as client:
            assert client.send(get("")).receive(b"GET / 0").startswith(b"HTTP/1.1 200")
            (connection,) = server.http_server._connections
            option = connection._transport.get_extra_info("socket").getsockopt  # type: ignore[union-attr]
            assert option(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_server_answers_what_it_has_and_accepts_no_more_when_it_closes(server: RunningServer) -> None:
    with server.client() as client:
        client.send(get("wait")).gets_nothing(0.1)
        closed = server.close(5)
        server.release()
        client.receive(b"GET /wait 0")
        closed.result(5)
    with pytest.raises(OSError):
        server.client()


class _Loop:
    """What accepting gives, in turn."""

    def __init__(self, *found: OSError | socket.socket) -> None:
        self.found = list(found)
        self.reported: list[Any] = []

    async def sock_accept(self, listener: object) -> tuple[socket.socket, object]:
        found = self.found.pop(0)
        if isinstance(found, OSError):
            raise found
        return found, None

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.reported.append(context["exception"])


def _gone_on_windows() -> OSError:
    error = OSError(errno.EINVAL, "The specified network name is no longer available")
    vars(error).update(winerror=64)
    return error


@pytest.mark.parametrize(
    ("error", "pauses", "reported", "logged"),
    [
        (_gone_on_windows(), 0, 0, 0),
        (OSError(errno.ECONNABORTED, "aborted"), 0, 0, 0),
        (OSError(errno.EMFILE, "too many open files"), 1, 1, 0),
        (OSError(errno.EINVAL, "invalid"), 1, 0, 1),
    ],
    ids=["gone", "aborted", "no descriptor", "other"],
)
async def test_a_client_that_is_gone_holds_up_no_other_and_a_lack_is_waited_out(
    error: OSError, pauses: int, reported: int, logged: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused = list[float]()

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    with socket.socket() as gone, socket.create_server(("127.0.0.1", 0)) as listener:
        gone.close()  # its client was gone before anything could be set
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as served:
            loop = _Loop(error, gone, served)
            monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
            monkeypatch.setattr(asyncio, "sleep", pause)
            assert await next_connection(listener) is served
            monkeypatch.undo()
            assert served.getblocking() is False
    assert (len(paused), len(loop.reported), len(caplog.records)) == (pauses, reported, logged)
