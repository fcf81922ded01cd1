"""A hub that plays a script on a real socket: for every answer and failure that a command may meet."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any

    @property
    def key(self) -> str:
        """`GET /agents`, or the JSON-RPC method."""
        return (
            str(self.body["method"]) if isinstance(self.body, dict) and "jsonrpc" in self.body else f"{self.method} {self.path}"
        )


@dataclass
class Told:
    """An answer. `frames` makes it a stream; `cut` breaks it off before its end; `hold` keeps it open."""

    body: Any = None
    status: int = 200
    frames: list[tuple[int, dict[str, Any]]] | None = None
    cut: bool = False
    hold: bool = False


@dataclass
class ScriptedHub:
    """`answers` has a list per key; its last answer is repeated."""

    url: str = ""
    answers: dict[str, list[Told]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def on(self, key: str, *told: Told) -> None:
        self.answers[key] = list(told)

    def result(self, key: str, result: Any) -> None:
        self.on(key, Told({"jsonrpc": "2.0", "id": "1", "result": result}))

    def error(self, key: str, code: int, message: str, reason: str) -> None:
        data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "rolecall", "metadata": {}}]
        self.on(key, Told({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": message, "data": data}}))

    def calls(self) -> list[str]:
        return [asked.key for asked in self.asked]

    def answer(self, asked: Asked) -> Told:
        self.asked.append(asked)
        script = self.answers.get(asked.key)
        if not script:
            return Told({"title": "Not found", "reason": "NOT_FOUND", "detail": "not in the script"}, 404)
        return script.pop(0) if len(script) > 1 else script[0]


@contextmanager
def scripted_hub() -> Iterator[ScriptedHub]:
    hub = ScriptedHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub.answer, hub.closing))
    server.daemon_threads = False
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(answer: Callable[[Asked], Told], closing: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            told = answer(Asked(self.command, parts.path, parts.query, headers, body))
            if told.frames is None:
                self._whole(told)
            else:
                self._stream(told.frames, told)

        def _whole(self, told: Told) -> None:
            content = told.body.encode() if isinstance(told.body, str) else json.dumps(told.body).encode()
            self.send_response(told.status)
            self.send_header("content-type", "text/html" if isinstance(told.body, str) else "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, frames: list[tuple[int, dict[str, Any]]], told: Told) -> None:
            content = b"".join(_frame(cursor, document) for cursor, document in frames)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            # A length that is never reached is how a cut looks to the client.
            self.send_header("content-length", str(len(content) + (1 if told.cut or told.hold else 0)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()
            if told.hold:
                closing.wait(20)
            self.close_connection = True

        do_GET = do_POST = do_DELETE = do_PUT = _serve

    return Handler


def _frame(cursor: int, document: dict[str, Any]) -> bytes:
    envelope = {"jsonrpc": "2.0", "id": "1", **({"error": document["error"]} if "error" in document else {"result": document})}
    return f"id: {cursor}\ndata: {json.dumps(envelope)}\n\n".encode()


def task(state: str = "submitted", **more: Any) -> dict[str, Any]:
    return {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": state}, **more}


def status(state: str, text: str = "", *, final: bool = False) -> dict[str, Any]:
    message = {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": text}]}
    inner = {"state": state, **({"message": message} if text else {})}
    return {"kind": "status-update", "taskId": "t1", "contextId": "c1", "status": inner, "final": final}


def chunk(text: str, *, append: bool = True, artifact: str = "a1") -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {
        "kind": "artifact-update",
        "taskId": "t1",
        "contextId": "c1",
        "append": append,
        "artifact": {"artifactId": artifact, "parts": parts},
    }
