"""The scripted server of the tests closes every connection that it accepted, whenever it ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from tests.helpers.raw_server import Peer, RawServer


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_whose_script_has_not_begun_is_closed_with_its_server(turns: int) -> None:
    """The client connects, and the server ends after that many turns of the loop."""

    async def script(peer: Peer) -> None:
        await peer.gone()

    with socket.socket() as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        async with RawServer(script) as server:
            client.connect(("127.0.0.1", server.port))
            for _ in range(turns):
                await asyncio.sleep(0)
        client.settimeout(5)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
