"""A hub that plays a script on a real socket, for every answer and failure that a command can get."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Request:
    """One received request."""

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
class Response:
    """An answer. `frames`: a stream; `cut`: it breaks before its end; `hold`: it stays open; `task`: which its head names."""

    body: Any = None
    status: int = 200
    frames: list[tuple[int, dict[str, Any]]] | None = None
    cut: bool = False
    hold: bool = False
    task: str | None = None


@dataclass
class ScriptedHub:
    """`answers` has a list per key; its last answer is repeated."""

    url: str = ""
    answers: dict[str, list[Response]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def on(self, key: str, *responses: Response) -> None:
        self.answers[key] = list(responses)

    def result(self, key: str, result: Any) -> None:
        self.on(key, Response({"jsonrpc": "2.0", "id": "1", "result": result}))

    def error(self, key: str, code: int, message: str, reason: str) -> None:
        data = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "rolecall", "metadata": {}}]
        self.on(key, Response({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": message, "data": data}}))

    def calls(self) -> list[str]:
        return [request.key for request in self.requests]

    def answer(self, request: Request) -> Response:
        self.requests.append(request)
        script = self.answers.get(request.key)
        if not script:
            return Response({"title": "Not found", "reason": "NOT_FOUND", "detail": "not in the script"}, 404)
        return script.pop(0) if len(script) > 1 else script[0]


@contextmanager
def scripted_hub(*, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedHub]:
    hub = ScriptedHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub.answer, hub.closing))
    server.daemon_threads = False
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    hub.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(answer: Callable[[Request], Response], closing: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            response = answer(Request(self.command, parts.path, parts.query, headers, body))
            if response.frames is None:
                self._answer(response)
            else:
                # The hub's own feeds have no envelope around a change.
                frame = _frame if body is not None else _plain_frame
                self._stream([frame(cursor, document) for cursor, document in response.frames], response)

        def _answer(self, response: Response) -> None:
            content = response.body.encode() if isinstance(response.body, str) else json.dumps(response.body).encode()
            self.send_response(response.status)
            self.send_header("content-type", "text/html" if isinstance(response.body, str) else "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, frames: list[bytes], response: Response) -> None:
            content = b"".join(frames)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            if response.task is not None:
                self.send_header("a2a-task", response.task)
            # To the client, a length that is never reached looks like a cut.
            self.send_header("content-length", str(len(content) + (1 if response.cut or response.hold else 0)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()
            if response.hold:
                closing.wait(20)
            self.close_connection = True

        do_GET = do_POST = do_DELETE = do_PUT = _serve

    return Handler


def _frame(cursor: int, document: dict[str, Any]) -> bytes:
    inner = {"error": document["error"]} if "error" in document else {"result": document}
    return _plain_frame(cursor, {"jsonrpc": "2.0", "id": "1", **inner})


def _plain_frame(cursor: int, document: dict[str, Any]) -> bytes:
    return f"id: {cursor}\ndata: {json.dumps(document)}\n\n".encode()


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
