"""How the hub listens."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from hub.run import open_listener


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
