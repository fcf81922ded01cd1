"""A worker that is not ours, for large files: `python -m tests.acceptance.file_worker PORT DIALECT`. It answers a file with its
length, and a number with a file of so many bytes.

It streams if it is asked to. Otherwise its task works at first, and is done when it is asked for. Its tasks have the message in
their history, as those of the official SDKs do.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

_STREAMS = ("message/stream", "SendStreamingMessage")
_SENDS = ("message/send", "SendMessage")


class Files:
    """The tasks of a worker in one dialect."""

    def __init__(self, dialect: str) -> None:
        self._new = dialect == "1.0"
        self._tasks: dict[str, Any] = {}

    def begin(self, message: dict[str, Any]) -> dict[str, Any]:
        """The task as it is first shown. It is done from then on."""
        ids = {"id": str(uuid4()), "contextId": message["contextId"]}
        history = [{**message, "taskId": ids["id"]}]
        began = {**ids, **self._kind("task"), "status": self._status("working"), "history": history}
        artifact = {"artifactId": "file", "parts": [self._answer(message["parts"][0])]}
        self._tasks[ids["id"]] = {**began, "status": self._status("completed"), "artifacts": [artifact]}
        return began

    def find(self, name: str) -> Any:
        return self._tasks[name]

    def events(self, message: dict[str, Any]) -> Sequence[dict[str, Any]]:
        began = self.begin(message)
        done = self._tasks.pop(began["id"])
        ids = {"taskId": began["id"], "contextId": began["contextId"]}
        artifact = {**ids, **self._kind("artifact-update"), "artifact": done["artifacts"][0]}
        status = {**ids, **self._kind("status-update"), "status": done["status"], **({} if self._new else {"final": True})}
        if self._new:
            return [{"task": began}, {"artifactUpdate": artifact}, {"statusUpdate": status}]
        return [began, artifact, status]

    def answered(self, task: dict[str, Any], method: str) -> dict[str, Any]:
        return {"task": task} if self._new and method in _SENDS else task

    def _kind(self, name: str) -> dict[str, str]:
        return {} if self._new else {"kind": name}

    def _status(self, state: str) -> dict[str, str]:
        return {"state": f"TASK_STATE_{state.upper()}" if self._new else state}

    def _answer(self, part: dict[str, Any]) -> dict[str, Any]:
        if "text" not in part:
            text = str(len(b64decode(part["raw"] if self._new else part["file"]["bytes"])))
            return {"text": text} if self._new else {"kind": "text", "text": text}
        content = b64encode(b"a" * int(part["text"])).decode()
        return {"raw": content} if self._new else {"kind": "file", "file": {"bytes": content}}


def serve(port: int, files: Files) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(b"{}")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            method, params = request["method"], request["params"]
            if method in _STREAMS:
                self._stream(request["id"], files.events(params["message"]))
                return
            task = files.begin(params["message"]) if method in _SENDS else files.find(params["id"])
            self._send(_response(request["id"], files.answered(task, method)))

        def _stream(self, call_id: Any, events: Sequence[dict[str, Any]]) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for event in events:
                self.wfile.write(b"data: " + _response(call_id, event) + b"\n\n")

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _response(call_id: Any, result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": call_id, "result": result}).encode()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Files(sys.argv[2]))
