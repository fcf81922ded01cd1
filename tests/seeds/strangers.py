"""Peers that do not use our SDK: an agent that plays a script, and receivers of webhooks. In threads, on real sockets."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from tests.helpers.processes import wait_for

JsonObject = dict[str, Any]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.02,), name=type(self).__name__, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a hub that disconnects during an answer, because it was killed or has read enough. All else is a fault."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


# --- an agent that follows a script


class ScriptedAgent(_Server):
    """A 0.3 agent without any SDK. The text of a message is the script: a JSON list of events and of seconds to wait. The
    agent adds the ids. Any other text completes at once.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ScriptedAgentHandler)
        self.tasks: dict[str, JsonObject] = {}

    @staticmethod
    def status(state: str, text: str | None = None, **members: Any) -> JsonObject:
        status: JsonObject = {"state": state, "timestamp": "2026-05-10T18:00:00Z"}
        if text is not None:
            status["message"] = {
                "kind": "message",
                "role": "agent",
                "messageId": f"said {text}",
                "parts": [{"kind": "text", "text": text}],
            }
        final = state in ("completed", "failed", "canceled", "rejected", "cancelled")
        return {"kind": "status-update", "status": status, "final": final, **members}

    @staticmethod
    def artifact(*parts: JsonObject, artifact_id: str = "a1", **members: Any) -> JsonObject:
        artifact = {"artifactId": artifact_id, "name": "result", "parts": list(parts)}
        return {"kind": "artifact-update", "artifact": artifact, **members}


class _ScriptedAgentHandler(_Handler):
    server: ScriptedAgent

    def do_POST(self) -> None:
        request = json.loads(self.body())
        params, task = request["params"], request["params"].get("id")
        if request["method"] in ("message/stream", "message/send"):
            self._play(request["id"], params["message"])
        elif task not in self.server.tasks:
            self._reply(request["id"], error={"code": -32001, "message": "who?"})
        else:
            known = self.server.tasks[task]
            if request["method"] == "tasks/cancel":
                known["status"] = {"state": "canceled", "timestamp": "2026-05-10T18:00:01Z"}
            self._reply(request["id"], result=known)

    def _reply(self, call: Any, **members: Any) -> None:
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": call, **members}).encode())

    def _play(self, call: Any, message: JsonObject) -> None:
        ids = {"taskId": str(uuid4()), "contextId": message.get("contextId") or str(uuid4())}
        task = {"kind": "task", "id": ids["taskId"], "contextId": ids["contextId"], "status": {"state": "submitted"}}
        self.server.tasks[ids["taskId"]] = task
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self._frame(call, task)
        text = message["parts"][0]["text"]
        for event in json.loads(text) if text.startswith("[") else [ScriptedAgent.status("completed")]:
            if isinstance(event, int | float):
                time.sleep(event)
                continue
            if event.get("kind") == "task":
                event = {**task, **event}
            elif event.get("kind") != "message":
                event = {**ids, **event}
            if "status" in event:
                task["status"] = event["status"]
            self._frame(call, event)

    def _frame(self, call: Any, event: JsonObject) -> None:
        self.wfile.write(b"data: " + json.dumps({"jsonrpc": "2.0", "id": call, "result": event}).encode() + b"\n\n")
        self.wfile.flush()


# --- a receiver of webhooks


@dataclass(frozen=True)
class WebhookRequest:
    headers: dict[str, str]
    body: JsonObject
    at: float


class Receiver(_Server):
    """Keeps every request. `answers`: the statuses to return, in turn; the last one is repeated."""

    def __init__(self, answers: Sequence[int] = (200,)) -> None:
        super().__init__(("127.0.0.1", 0), _ReceiverHandler)
        self.requests: list[WebhookRequest] = []
        self._answers = list(answers)

    def take(self, post: WebhookRequest) -> int:
        self.requests.append(post)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def reply(self, body: JsonObject) -> bytes:
        return b""

    @property
    def states(self) -> list[str]:
        return [post.body["status"]["state"] for post in self.requests if "status" in post.body]

    def wait(self, enough: Callable[[Receiver], bool], timeout: float = 10.0) -> None:
        wait_for(lambda: enough(self), timeout)


class _ReceiverHandler(_Handler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.body())
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.answer(self.server.take(WebhookRequest(headers, body, time.monotonic())), self.server.reply(body))
