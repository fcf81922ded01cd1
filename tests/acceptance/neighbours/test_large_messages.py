"""Large messages: to a worker that does not read, and to no worker at all."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.neighbours.rig import BUSY, Neighbours, neighbours
from tests.helpers.client import text_message

SIZE = 900_000
SETTING = "ROLECALL_MAX_MESSAGE_MEMORY_PER_WORKSPACE"


@contextmanager
def worker_that_reads_nothing() -> Iterator[str]:
    """Accepts every connection, and reads nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(listener.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept, name="accepting", daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for connection in accepted:
            connection.close()


async def _answers(pair: Neighbours, role: str, count: int) -> Sequence[str]:
    """The beginnings of the answers to so many large streaming calls at once. Those that are accepted get a comment first, and
    stay open until all are answered.
    """

    async def one(connections: ExitStack) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", pair.hub.port)
        connections.callback(writer.close)
        params = text_message(uuid4().hex * (SIZE // 32))
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": params})
        head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        token = f"Authorization: {pair.headers(BUSY)['Authorization']}\r\n"
        writer.write(f"POST /agents/{role}/ HTTP/1.1\r\n{head}{token}\r\n{body}".encode())
        async with asyncio.timeout(60):
            await reader.readuntil(b"\r\n\r\n")
            return (await reader.read(400)).decode()

    with ExitStack() as connections:
        return await asyncio.gather(*(one(connections) for _ in range(count)))


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.soak)])
def test_large_messages_to_a_worker_that_does_not_read_fill_only_their_workspaces_part(tmp_path: Path, count: int) -> None:
    limits = {"max_message_memory_per_workspace": 24 * 1024 * 1024, "keep_alive": 0.3}
    with neighbours(tmp_path, **limits) as pair, worker_that_reads_nothing() as url:
        card = {"capabilities": {"streaming": True}}
        pair.ask(BUSY, "PUT", "/registry/agents/deaf/a", {"url": url, "boot": "b", "card": card}, kind="worker")
        with pair.unharmed():
            answers = asyncio.run(_answers(pair, "deaf", count))
        kinds = Counter(
            "refused" if SETTING in answer else "accepted" if "keep-alive" in answer else answer for answer in answers
        )
        assert set(kinds) == {"refused", "accepted"}
        # Each holds its size as a request, and twice as a message.
        assert kinds["accepted"] <= 24 * 1024 * 1024 // (3 * SIZE)


def test_large_messages_that_are_refused_leave_nothing_behind(tmp_path: Path) -> None:
    with neighbours(tmp_path) as pair, pair.unharmed(memory=50):
        for _ in range(6):
            answers = asyncio.run(_answers(pair, "nobody", 20))
            assert all("ROLE_UNKNOWN" in answer for answer in answers)
