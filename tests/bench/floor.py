"""The floor: a bare durable relay, clearly not a hub. It shows the least that a hub with the same promise can cost in Python.

Runs as `python -m tests.bench.floor WORKER_PORT DATABASE` and prints its port. It forwards a call to the one worker, splits
the answer into events, writes its own task id into each, commits it to SQLite as the hub does, and only then writes the event
to the client. It has no tokens, limits, routing, back-pressure or recovery, and never reads what it has stored.

By hand, because any framework between the two sockets would be a part of what it measures.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httptools
import msgspec
import uvloop

from hub.storage.sqlite.connections.checkpoints import CHECKPOINT, Checkpoints

_SCHEMA = """
create table task (key integer primary key, id text not null unique, state text not null, last integer not null) strict;
create table event (place integer primary key, kind text not null, body blob not null) strict;
"""
_ADMIT = "insert into task (key, id, state, last) values (?, ?, 'submitted', 0)"
_ADD = "insert into event (place, kind, body) values (?, ?, ?)"
_END = "update task set state = ?, last = ? where key = ?"
# Those of hub/storage/sqlite/engine.py.
_PRAGMAS = (
    "journal_mode = wal",
    "synchronous = full",
    "temp_store = memory",
    "journal_size_limit = 67108864",
    "cache_size = -16000",
    "wal_autocheckpoint = 16000",
    "cache_spill = off",
)
CURSOR_BITS = 24
"""An event's place: its task's key in the high bits, its number in the low bits."""
_BATCH_LIMIT = 500
_MAX_WAIT_TURNS = 2
_BACKLOG = 2048
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Statement = tuple[str, Sequence[Any]]


class Store:
    """As hub/storage/sqlite/connections/writer.py does: statements run on the loop, group commits on one thread."""

    def __init__(self, database: Path) -> None:
        self._db = sqlite3.connect(database, isolation_level=None, cached_statements=256, check_same_thread=False)
        for pragma in _PRAGMAS:
            self._db.execute(f"pragma {pragma}")
        self._db.executescript(_SCHEMA)
        self._queue: deque[tuple[Sequence[Statement], Callable[[], None]]] = deque()
        self._batches: SimpleQueue[list[Callable[[], None]]] = SimpleQueue()
        self._busy = self._restart = False
        self._commits = 0
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="commits", daemon=True).start()
        Checkpoints(database, lambda: self._commits, self._restart_log).start()

    def submit(self, statements: Sequence[Statement], then: Callable[[], None]) -> None:
        """`then` runs on the loop once the statements are on disk."""
        self._queue.append((statements, then))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._gather, 0, 0)

    def _gather(self, turns: int, waiting_before: int) -> None:
        waiting = len(self._queue)
        if waiting > waiting_before and turns < _MAX_WAIT_TURNS:
            self._loop.call_soon(self._gather, turns + 1, waiting)
        elif waiting:
            self._execute([self._queue.popleft() for _ in range(min(waiting, _BATCH_LIMIT))])
        else:
            self._busy = False

    def _execute(self, batch: list[tuple[Sequence[Statement], Callable[[], None]]]) -> None:
        execute = self._db.execute
        execute("begin immediate")
        for statements, _ in batch:
            for sql, values in statements:
                execute(sql, values)
        self._batches.put([then for _, then in batch])

    def _settle(self, batch: list[Callable[[], None]]) -> None:
        for then in batch:
            then()
        self._gather(0, 0)

    def _run(self) -> None:
        """The thread. A failed commit ends it, and the calls hang: the benchmark reports them."""
        while True:
            batch = self._batches.get()
            self._db.execute("commit")
            self._commits += 1
            if self._restart:
                self._restart = False
                self._db.execute(CHECKPOINT).fetchone()
            self._loop.call_soon_threadsafe(self._settle, batch)

    def _restart_log(self) -> None:
        """Called on the thread of the checkpoints: the log is long."""
        self._restart = True


class Relay:
    """What all calls share: the store, the worker's port, and connections to the worker that are free."""

    def __init__(self, store: Store, worker: int) -> None:
        self.store = store
        self.free: list[WorkerConnection] = []
        self._worker = worker
        self._keys = 0
        self._connecting: set[asyncio.Task[None]] = set()

    def begin(self, client: ClientConnection, body: bytes) -> None:
        """Store the task, then forward the call."""
        request = _decode(body)
        self._keys += 1
        call = Call(self, client, self._keys, request)
        self.store.submit([(_ADMIT, (call.key, call.task))], lambda: self._forward(call, _encode(request)))

    def _forward(self, call: Call, body: bytes) -> None:
        if self.free:
            self.free.pop().send(call, body)
            return
        task = asyncio.create_task(self._connect(call, body), name="connect")
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, call: Call, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: WorkerConnection(self), "127.0.0.1", self._worker)
        connection.send(call, body)


class Call:
    """One call from its admission to the last byte of its answer."""

    def __init__(self, relay: Relay, client: ClientConnection, key: int, request: dict[str, Any]) -> None:
        self.key = key
        self.task = f"floor-{key}"
        self._relay = relay
        self._client = client
        self._id = _encode(request["id"])
        self._streams = request["method"] == "message/stream"
        self._last = 0
        self._state = ""

    def take(self, answers: Sequence[bytes], ended: bool) -> None:
        """Store the worker's answers that one read brought, then write them."""
        statements: list[Statement] = []
        parts = [_STREAM_HEAD] if self._streams and not self._last else []
        for answer in answers:
            result = _decode(answer)["result"]
            result["id" if result["kind"] == "task" else "taskId"] = self.task
            if "status" in result:
                self._state = result["status"]["state"]
            self._last += 1
            body = _encode(result)
            statements.append((_ADD, ((self.key << CURSOR_BITS) + self._last, result["kind"], bytearray(body))))
            parts.append(self._written(body))
        if ended:
            statements.append((_END, (self._state, self._last, self.key)))
            if self._streams:
                parts.append(_LAST_CHUNK)
        if statements:
            self._relay.store.submit(statements, lambda: self._client.write(b"".join(parts)))

    def _written(self, body: bytes) -> bytes:
        answer = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (self._id, body)
        if not self._streams:
            return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
        frame = b"id: %d\ndata: %b\n\n" % (self._last, answer)
        return b"%x\r\n%b\r\n" % (len(frame), frame)


class WorkerConnection(asyncio.Protocol):
    """One connection to the worker. It carries one call at a time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._call: Call | None = None
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._buffer = b""
        self._answers: list[bytes] = []
        self._streams = self._ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def send(self, call: Call, body: bytes) -> None:
        self._call = call
        self._parser = httptools.HttpResponseParser(self)
        self._streams = self._ended = False
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        answers, self._answers = self._answers, []
        call = self._call
        if call is not None and (answers or self._ended):
            if self._ended:
                self._call = None
                self._relay.free.append(self)
            call.take(answers, self._ended)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
            self._streams = True

    def on_body(self, data: bytes) -> None:
        self._buffer += data
        if self._streams:
            *frames, self._buffer = self._buffer.split(b"\n\n")
            self._answers += [frame.removeprefix(b"data: ") for frame in frames]

    def on_message_complete(self) -> None:
        self._ended = True
        if not self._streams:
            self._answers.append(self._buffer)
        self._buffer = b""


class ClientConnection(asyncio.Protocol):
    """One connection of a client, which sends a call when the previous one is answered."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if self._parser.get_method() == b"POST":
            self._relay.begin(self, body)
        else:
            self.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


async def main(worker: int, database: Path) -> None:
    relay = Relay(Store(database), worker)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ClientConnection(relay), "127.0.0.1", 0, backlog=_BACKLOG)
    # As in hub/run.py: little garbage collection, and short waits for the other thread.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    sys.setswitchinterval(0.001)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1]), Path(sys.argv[2])))
