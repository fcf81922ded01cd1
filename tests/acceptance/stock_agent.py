"""An agent of 0.3 that asks for a colour and keeps its tasks in a file: `stock_agent.py PORT FILE`.

Nothing in it knows of Rolecall.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4


class TaskFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tasks: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "message/send":
            message = params["message"]
            task = self._ask(message) if "taskId" not in message else self._complete(message)
            self._path.write_text(json.dumps(self._tasks))
            return {"result": task}
        known = self._tasks.get(params.get("id", ""))
        return {"result": known} if known else {"error": {"code": -32001, "message": "Task not found"}}

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        name, context = str(uuid4()), message.get("contextId") or str(uuid4())
        question = {"kind": "message", "role": "agent", "messageId": str(uuid4()), "parts": [_part("Which colour?")]}
        status = {"state": "input-required", "message": question}
        self._tasks[name] = {"kind": "task", "id": name, "contextId": context, "status": status, "history": [message]}
        return dict(self._tasks[name])

    def _complete(self, message: dict[str, Any]) -> dict[str, Any]:
        task = self._tasks[message["taskId"]]
        text = message["parts"][0]["text"]
        task |= {"status": {"state": "completed"}, "artifacts": [{"artifactId": "a", "parts": [_part(f"{text} it is")]}]}
        return dict(task)


def _part(text: str) -> dict[str, str]:
    return {"kind": "text", "text": text}


def serve(port: int, tasks: TaskFile) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send({"ready": True})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._send({"jsonrpc": "2.0", "id": request["id"], **tasks.answer(request["method"], request["params"])})

        def _send(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), TaskFile(Path(sys.argv[2])))
