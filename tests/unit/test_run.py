"""How the hub listens."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from typing import Any

import pytest
import uvloop

from hub.core.shares.descriptors import Descriptors
from hub.run import _loop_factory, _on_loop_error, open_listener
from rolecall.errors import ConfigError


@pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_an_event_is_sent_at_once_and_does_not_wait_for_the_last_ones_receipt(loop_factory: type) -> None:
    async def no_delay() -> int:
        loop = asyncio.get_running_loop()
        option: asyncio.Future[int] = loop.create_future()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connection = transport.get_extra_info("socket")
                option.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        listener = open_listener("127.0.0.1", 0, 5.0)
        address = listener.getsockname()
        server = await loop.create_server(Server, sock=listener)
        _, writer = await asyncio.open_connection(*address)
        try:
            return await option
        finally:
            writer.close()
            await writer.wait_closed()
            server.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(no_delay()) != 0


def test_a_port_in_use_is_reported_and_leaves_no_socket() -> None:
    with open_listener("127.0.0.1", 0, 5.0) as listener, pytest.raises(OSError, match="in use"):
        listener.listen()
        open_listener("127.0.0.1", listener.getsockname()[1], 5.0)


def test_a_loop_that_is_not_installed_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (_loop_factory("uvloop"), _loop_factory("auto")) == (uvloop.new_event_loop, uvloop.new_event_loop)
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert (_loop_factory("auto"), _loop_factory("asyncio")) == (None, None)
    with pytest.raises(ConfigError, match="loop: uvloop is not installed"):
        _loop_factory("uvloop")


@pytest.mark.parametrize(
    ("context", "level"),
    [
        ({"handle": None, "exception": ConnectionResetError(errno.ECONNRESET, "reset")}, logging.DEBUG),
        ({"transport": None, "exception": OSError(errno.ETIMEDOUT, "timed out")}, logging.INFO),
        ({"task": None, "exception": ConnectionResetError(errno.ECONNRESET, "reset")}, logging.ERROR),
        ({"handle": None, "exception": KeyError("x")}, logging.ERROR),
    ],
)
def test_the_end_of_a_connection_is_no_error_of_the_hub(
    context: dict[str, Any], level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    loop = asyncio.new_event_loop()
    caplog.clear()
    _on_loop_error(Descriptors(), loop, {"message": "x", **context})
    loop.close()
    assert [record.levelno for record in caplog.records] == [level]
