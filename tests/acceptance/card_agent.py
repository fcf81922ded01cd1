"""An agent of 0.3 that serves the card in a file and answers "echo: …": `card_agent.py HOST PORT CARD [TOKEN]`.

Nothing in it knows of Rolecall. With TOKEN it answers nobody else. It prints each request: method, path, Host, status.
"""

from __future__ import annotations

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4


def serve(host: str, port: int, card: Path, token: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = card.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:12]}"'
            if self._refused():
                return
            if self.path != "/.well-known/agent-card.json":
                self._send(404, b"{}")
            elif self.headers["if-none-match"] == etag:
                self._send(304, b"")
            else:
                self._send(200, body, etag=etag)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self._refused():
                return
            message = request["params"]["message"]
            text = f"echo: {message['parts'][0]['text']}"
            status = {"state": "completed"}
            artifacts = [{"artifactId": "a", "parts": [{"kind": "text", "text": text}]}]
            context = message.get("contextId") or str(uuid4())
            task = {"kind": "task", "id": str(uuid4()), "contextId": context, "status": status, "artifacts": artifacts}
            self._send(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": task}).encode())

        def _refused(self) -> bool:
            if token and self.headers["authorization"] != f"Bearer {token}":
                self._send(401, b"{}")
                return True
            return False

        def _send(self, status: int, body: bytes, **headers: str) -> None:
            print(self.command, self.path, self.headers["host"], status, flush=True)
            self.send_response(status)
            sent: dict[str, Any] = {"content-type": "application/json", "content-length": len(body), **headers}
            for name, value in sent.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    ThreadingHTTPServer((host, port), Handler).serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
