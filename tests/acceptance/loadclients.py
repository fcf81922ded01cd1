"""Clients for the load tests: readers on raw sockets that read on demand, and a probe of the latency of other calls.

`python -m tests.acceptance.loadclients calls|livez|lag PORT PAUSE` measures from its own process, so that the work of the test
does not count.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httptools
import httpx

from rolecall.protocol.sse import FrameReader
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, Process

_SEGMENT = 1400
"""Segments as on a real network. Those of loopback are 64 kB large, and the system then buffers megabytes per connection: a
hub would notice late that a reader has stopped.
"""
_PIECE = 64 * 1024


def open_stream(role: str, text: str) -> bytes:
    return _request(f"/agents/{role}/", "message/stream", text_message(text))


def resume(task: str, cursor: int) -> bytes:
    return _request("/", "tasks/resubscribe", {"id": task}, f"Last-Event-ID: {cursor}\r\n")


def _request(path: str, method: str, params: dict[str, Any], headers: str = "") -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
    kind = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{kind}{headers}\r\n{body}".encode()


class StreamReader:
    """One reader of a stream. It keeps the cursor of every frame, and the number at the start of every page. With `parse`
    false it only counts bytes.
    """

    def __init__(self, port: int, request: bytes, *, buffer: int = 16 * 1024, parse: bool = True) -> None:
        self.cursors: list[int] = []
        self.numbers: list[int] = []
        self.task = ""
        self.state = ""
        self.size = 0
        self.ended = False
        """The stream ended with its last chunk."""
        self.broken = False
        """The connection was cut."""
        self._parse = parse
        self._frames = FrameReader()
        self._parser = httptools.HttpResponseParser(self)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
        self.socket.settimeout(10)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(request)

    def read(self, size: int = _PIECE) -> int:
        """Read at most `size` bytes. Waits for some, unless the socket does not block."""
        try:
            piece = self.socket.recv(size)
        except BlockingIOError:
            return 0
        except ConnectionError:
            piece = b""
        self.size += len(piece)
        if piece and self._parse:
            self._parser.feed_data(piece)
        elif not piece and not self.ended:
            self.broken = True
        return len(piece)

    def read_until(self, holds: Callable[[StreamReader], bool], timeout: float = 30) -> None:
        until = time.monotonic() + timeout
        while not (holds(self) or self.ended or self.broken):
            assert time.monotonic() < until, f"not within {timeout:g} s; {len(self.numbers)} pages came"
            self.read()
        assert holds(self), f"it was over before; {len(self.numbers)} pages came"

    def read_at(self, rate: float, seconds: float) -> None:
        """Read `rate` bytes a second for so many seconds."""
        began, size = time.monotonic(), self.size
        while (passed := time.monotonic() - began) < seconds:
            due = int(rate * passed) - (self.size - size)
            if due > 0:
                self.read(due)
            time.sleep(1000 / rate)  # until the next thousand bytes are due

    def close(self, *, reset: bool = False) -> None:
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- the parser's callbacks

    def on_headers_complete(self) -> None:
        assert self._parser.get_status_code() == 200

    def on_body(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if frame.data:
                self._take(int(frame.id or 0), frame.data)

    def on_message_complete(self) -> None:
        self.ended = True

    def _take(self, cursor: int, data: bytes) -> None:
        event = json.loads(data)["result"]
        self.task = self.task or event.get("taskId") or event["id"]
        self.state = event.get("status", {}).get("state", self.state)
        if event["kind"] != "task":
            self.cursors.append(cursor)
            parts = event.get("artifact", {}).get("parts", [])
            # The last chunk of a text is empty.
            self.numbers += [int(part["text"].partition(" ")[0]) for part in parts if part["text"]]


class ReaderGroup:
    """Many readers. One thread reads all of them while `reading` is entered."""

    def __init__(self, readers: Sequence[StreamReader]) -> None:
        self.readers = readers
        self._selector = selectors.DefaultSelector()
        self._is_reading = False
        for reader in readers:
            reader.socket.setblocking(False)
            self._selector.register(reader.socket, selectors.EVENT_READ, reader)

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._is_reading = True
        thread = threading.Thread(target=self._read, name="crowd", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_reading = False
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.disconnect()

    def disconnect(self, *, reset: bool = False) -> None:
        self._selector.close()
        for reader in self.readers:
            reader.close(reset=reset)

    def _read(self) -> None:
        while self._is_reading:
            for key, _ in self._selector.select(0.1):
                reader: StreamReader = key.data
                reader.read()
                if reader.ended or reader.broken:
                    self._selector.unregister(key.fileobj)


# --- what other callers notice


class LatencyProbe:
    """Calls the hub repeatedly from another process. `kind`: `calls` to the role echo, `livez`, or `lag`, the hub's own
    metric. As a context manager it ends with its block. Its figures remain. The first call that fails ends it.
    """

    def __init__(self, kind: str, hub: HubProcess, folder: Path, *, pause: float = 0.01, token: str = "") -> None:
        argv = (sys.executable, "-m", "tests.acceptance.loadclients", kind, str(hub.port), str(pause))
        self._log = folder / f"{kind}-{time.monotonic_ns()}.log"
        self._process = Process(argv, log=self._log, name=kind, env={"ROLECALL_TOKEN": token})
        self._process.wait_until(lambda: bool(self.figures()))

    @property
    def pid(self) -> int:
        return self._process.pid

    def figures(self, since: float = 0, until: float = math.inf) -> list[float]:
        """Milliseconds of each call that began within these times of the monotonic clock."""
        assert self._process.alive, self._process.tail()
        lines = [
            connection.split(" ") for connection in self._log.read_text().splitlines(keepends=True) if connection.endswith("\n")
        ]
        return [float(took) for began, took in lines if since <= float(began) < until]

    def __enter__(self) -> LatencyProbe:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill9()


def p99(figures: Sequence[float]) -> float:
    return percentile(figures, 0.99)


def percentile(figures: Sequence[float], share: float) -> float:
    return sorted(figures)[min(int(len(figures) * share), len(figures) - 1)]


def memory_used(hub: HubProcess) -> float:
    """Resident memory of the process, in MB."""
    return _memory(hub, "VmRSS")


def memory_peak(hub: HubProcess) -> float:
    """The most that it has used since `forget_peak`, in MB."""
    return _memory(hub, "VmHWM")


def forget_peak(hub: HubProcess) -> None:
    Path(f"/proc/{hub.pid}/clear_refs").write_text("5")


def _memory(hub: HubProcess, line: str) -> float:
    status = Path(f"/proc/{hub.pid}/status").read_text()
    found = re.search(rf"^{line}:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def open_files(hub: HubProcess) -> int:
    return len(list(Path(f"/proc/{hub.pid}/fd").iterdir()))


def metric(hub: HubProcess, name: str) -> float:
    """The sum of a metric's series."""
    text = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    return sum(
        float(connection.rpartition(" ")[2])
        for connection in text.splitlines()
        if re.match(rf"a2a_hub_{name}[{{ ]", connection)
    )


def _measure(kind: str, port: int, pause: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one = {"calls": _call, "livez": _alive, "lag": _lag}[kind]
    while True:
        began = time.monotonic()
        seconds = one(connection)
        took = time.monotonic() - began if seconds is None else seconds
        print(f"{began:.4f} {took * 1000:.2f}", flush=True)
        time.sleep(pause)


def _call(connection: http.client.HTTPConnection) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": text_message("hi")})
    connection.request("POST", "/agents/echo/", body, {"Content-Type": "application/json", **_token()})
    answer = json.loads(connection.getresponse().read())
    assert answer["result"]["status"]["state"] == "completed", answer


def _token() -> dict[str, str]:
    token = os.environ.get("ROLECALL_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _alive(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok\n"


def _lag(connection: http.client.HTTPConnection) -> float:
    connection.request("GET", "/metrics", headers=_token())
    found = re.search(rb"^a2a_hub_event_loop_lag_seconds (\S+)$", connection.getresponse().read(), re.MULTILINE)
    assert found is not None
    return float(found[1])


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
