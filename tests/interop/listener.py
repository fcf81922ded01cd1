"""A webhook receiver on loopback, which tells its callers apart by the path that they were given."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from uuid import uuid4

from tests.helpers.processes import wait_for
from tests.interop.content import Json


@dataclass(frozen=True)
class Notice:
    headers: dict[str, str]
    body: Json


class Listener:
    """Takes everything. `url` makes a new address each time."""

    def __init__(self) -> None:
        self._got: defaultdict[str, list[Notice]] = defaultdict(list)
        got = self._got

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                got[self.path].append(Notice({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook receiver", daemon=True)

    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{uuid4()}"

    def got(self, url: str) -> list[Notice]:
        """In the order in which they came."""
        return list(self._got["/" + url.rpartition("/")[2]])

    def wait_until_received(self, url: str, word: str) -> list[Notice]:
        """All until the last one has this word in it."""
        wait_for(lambda: bool(notices := self.got(url)) and word in json.dumps(notices[-1].body))
        return self.got(url)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
