"""Many callers, and an agent whose streams stay silent, each in a process of its own, so that its work does not count.

`python -m tests.acceptance.neighbours.load agent` answers each message with a task that works for ever, and prints its port.
`… load hold PORT COUNT [SECONDS]` opens that many streams to the role `silent`, prints how many are open, and keeps them.
`… load storm PORT COUNT AT_ONCE` sends messages until so many were refused, each refused one again at once, and prints what
the refusals said, how often.
`… load repeat PORT AT_ONCE SECONDS [TASK]` has so many callers of the role `echo`: each sends a message, or asks for the task,
again at once when it is answered. It prints how many were answered.
`… load follow PORT READERS ROLE TASK` has so many readers of a running task of that role, and prints how many saw its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, cast

import uvloop

from tests.helpers.client import text_message
from tests.helpers.processes import Process

ROLE = "silent"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LAST_EVENT = 2000
_OPENED_AT_ONCE = 200


def start_agent(log: Path) -> tuple[Process, str]:
    """The agent and its URL."""
    agent = Process((sys.executable, "-m", __spec__.name, "agent"), log=log, name="silent agent")
    agent.wait_until(lambda: "\n" in agent.output)
    return agent, f"http://127.0.0.1:{int(agent.output)}/"


def start_callers(log: Path, *words: object, token: str) -> Process:
    """`hold`, `storm`, `repeat` or `follow`, with its arguments."""
    return Process(
        (sys.executable, "-m", __spec__.name, *map(str, words)),
        log=log,
        name=f"callers {words[0]}",
        env={"ROLECALL_TOKEN": token},
    )


def line_of(process: Process, timeout: float) -> dict[str, Any]:
    """The first line that it prints."""
    process.wait_until(lambda: "\n" in process.output, timeout)
    line: dict[str, Any] = json.loads(process.output.splitlines()[0])
    return line


# --- the agent


class _AgentConnection(asyncio.Protocol):
    """Takes requests that arrive whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not end or (length is not None and len(body) < int(length[1])):
            return
        self._received = b""
        request = json.loads(body)
        method, params = request["method"], request["params"]
        task = params.get("id") or uuid.uuid4().hex
        state = "canceled" if method == "tasks/cancel" else "working"
        document = {"id": task, "contextId": "c", "kind": "task", "status": {"state": state}}
        answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": document}).encode()
        if method == "message/stream":
            frame = b"data: %b\n\n" % answer
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            self._transport.write(head + b"%x\r\n%b\r\n" % (len(frame), frame))
        else:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
            self._transport.write(head + answer)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_AgentConnection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the callers


def _message(number: int) -> dict[str, Any]:
    """Each is another one, so that none is taken for a repeat."""
    return text_message(f"hi {number} {uuid.uuid4().hex}")


def _request(role: str, method: str, params: dict[str, Any]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    token = os.environ.get("ROLECALL_TOKEN")
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"POST /agents/{role}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{authorization}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Caller(asyncio.Protocol):
    """Sends one message; a refused one again at once, while `callers` wants more refusals. An answer that streams is kept."""

    def __init__(self, callers: _Callers) -> None:
        self._callers = callers
        self._received = b""
        self.streams = False
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._callers.open.discard(self)
        self._settle()

    def data_received(self, data: bytes) -> None:
        if self.streams:
            return
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and b"text/event-stream" in head:
            if body.endswith(_LAST_CHUNK):
                self._refused(json.loads(body[body.index(b"{") : body.rindex(b"}") + 1]))
            elif b'"result"' in body:
                self.streams = True
                self._callers.open.add(self)
                self._received = b""
                self._settle()
        elif end and (length := _LENGTH.search(head)) is not None and len(body) >= int(length[1]):
            self._refused(json.loads(body))

    def _refused(self, answer: dict[str, Any]) -> None:
        """By an error of JSON-RPC, or by a problem document."""
        self._received = b""
        self._callers.refusals[answer["error"]["message"] if "error" in answer else answer["detail"]] += 1
        if self._callers.refusals.total() < self._callers.wanted:
            self._send()
        else:
            self._settle()

    def _send(self) -> None:
        self._transport.write(_request(ROLE, "message/stream", _message(next(self._callers.numbers))))

    def _settle(self) -> None:
        if not self.settled.done():
            self.settled.set_result(None)


class _BusyCaller(asyncio.Protocol):
    def __init__(self, callers: _Callers, task: str) -> None:
        self._callers = callers
        self._task = task
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if end and (length := _LENGTH.search(head)) is not None and len(body) >= int(length[1]):
            self._received = b""
            assert b'"completed"' in body, body
            self._callers.answered += 1
            self._send()

    def _send(self) -> None:
        if self._task:
            self._transport.write(_request("echo", "tasks/get", {"id": self._task}))
        else:
            self._transport.write(_request("echo", "message/send", _message(next(self._callers.numbers))))


class _Callers:
    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.refusals = Counter[str]()
        self.open = set[_Caller]()
        self.answered = 0
        self.numbers = iter(range(sys.maxsize))


async def _call(port: int, callers: _Callers, count: int) -> None:
    """Return when each of so many callers has its stream or its refusal."""
    loop, made = asyncio.get_running_loop(), list[_Caller]()
    while len(made) < count:
        size = min(_OPENED_AT_ONCE, count - len(made))
        opening = (loop.create_connection(lambda: _Caller(callers), "127.0.0.1", port) for _ in range(size))
        made += [caller for _, caller in await asyncio.gather(*opening)]
        if callers.wanted == 0:
            await asyncio.gather(*(caller.settled for caller in made[-size:]))
    await asyncio.gather(*(caller.settled for caller in made))


async def _hold(port: int, count: int, seconds: float) -> None:
    callers = _Callers(0)
    await _call(port, callers, count)
    print(json.dumps({"open": len(callers.open), "refused": callers.refusals}), flush=True)
    await asyncio.sleep(seconds)
    print(json.dumps({"open": len(callers.open)}), flush=True)


async def _storm(port: int, count: int, at_once: int) -> None:
    callers = _Callers(count)
    await _call(port, callers, at_once)
    print(json.dumps({"open": len(callers.open), "refused": callers.refusals}), flush=True)


async def _repeat(port: int, at_once: int, seconds: float, task: str) -> None:
    loop, callers = asyncio.get_running_loop(), _Callers(0)
    opening = (loop.create_connection(lambda: _BusyCaller(callers, task), "127.0.0.1", port) for _ in range(at_once))
    await asyncio.gather(*opening)
    await asyncio.sleep(seconds)
    print(json.dumps({"answered": callers.answered}), flush=True)


async def _follow(port: int, readers: int, role: str, task: str) -> None:
    """All of them come at once."""
    head, _, body = _request(role, "tasks/resubscribe", {"id": task}).partition(b"\r\n\r\n")

    async def sees_the_end() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"%b\r\nConnection: close\r\n\r\n%b" % (head, body))
        last = b""
        try:
            async with asyncio.timeout(60):
                while data := await reader.read(1 << 16):
                    last = (last + data)[-_LAST_EVENT:]
        finally:
            writer.close()
        return b'"completed"' in last and b'"final":true' in last

    found = await asyncio.gather(*(sees_the_end() for _ in range(readers)))
    print(json.dumps({"ended": sum(found)}), flush=True)


def _main(words: list[str]) -> None:
    match words:
        case ["agent"]:
            job = _serve()
        case ["hold", port, count, *rest]:
            job = _hold(int(port), int(count), float(rest[0]) if rest else 3600.0)
        case ["storm", port, count, at_once]:
            job = _storm(int(port), int(count), int(at_once))
        case ["repeat", port, at_once, seconds, *task]:
            job = _repeat(int(port), int(at_once), float(seconds), *task or [""])
        case ["follow", port, readers, role, task]:
            job = _follow(int(port), int(readers), role, task)
        case _:
            sys.exit(__doc__)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(job)


if __name__ == "__main__":
    _main(sys.argv[1:])
