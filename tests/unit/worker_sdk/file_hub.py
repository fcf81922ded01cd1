"""The files of a hub, on a real socket, which cuts connections where a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from tests.helpers.raw_server import Peer, Request, answer

URL = "https://public.example/hub/registry/files"


@dataclass
class KeptFile:
    name: str
    media_type: str
    length: int
    content: bytearray = field(default_factory=bytearray)


class FileHub:
    """Script of a RawServer. `cuts`: after so many bytes each next upload or download is cut; None: it is not. `busy`: so many
    requests are answered with 503. `calls`: the requests of JSON-RPC, and `answers` the answers to them. `refusal`: of uploads.
    """

    def __init__(self, *cuts: int | None) -> None:
        self.calls: list[Request] = []
        self.answers: deque[bytes] = deque()
        self.refusal: tuple[int, str] | None = None
        self.files: dict[str, KeptFile] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.cuts = deque(cuts)
        self.busy = 0

    def keep(self, content: bytes, name: str = "f") -> str:
        """A file that is there; its url."""
        number = f"{len(self.files):032x}"
        self.files[number] = KeptFile(name, "text/plain", len(content), bytearray(content))
        return f"{URL}/{number}"

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.requests]

    async def __call__(self, peer: Peer) -> None:
        while (request := await _head_of(peer)) is not None:
            method, target, _ = request.line.split(" ")
            if target.startswith("/agents/"):
                body = await peer.reader.readexactly(int(request.headers["content-length"]))
                self.calls.append(Request(request.line, request.headers, body))
                await peer.write(self.answers.popleft())
                continue
            self.requests.append((method, target, request.headers))
            if self.busy:
                self.busy -= 1
                await peer.write(_refusal(503, "OVERLOADED"))
                return
            if not await self._answer(peer, method, urlsplit(target), request.headers):
                peer.reset()
                return

    async def _answer(self, peer: Peer, method: str, target: object, headers: dict[str, str]) -> bool:
        """False: cut the connection."""
        path, query = target.path, parse_qs(target.query)  # type: ignore[attr-defined]
        number = path.rpartition("/")[2]
        if method == "POST" and path == "/registry/files" and self.refusal:
            await peer.write(_refusal(*self.refusal))
            return True
        if method == "POST" and path == "/registry/files":
            number = f"{len(self.files):032x}"
            self.files[number] = KeptFile(query.get("name", [""])[0], headers["content-type"], int(headers["upload-length"]))
            await peer.write(self._state(number, "201 Created"))
            return True
        kept = self.files.get(number)
        if kept is None:
            await peer.write(_refusal(404, "FILE_NOT_FOUND"))
            return True
        if method == "PATCH":
            return await self._take(peer, number, kept, headers)
        if method == "HEAD":
            complete = f"?{int(len(kept.content) == kept.length)}"
            more = f'Upload-Offset: {len(kept.content)}\r\nUpload-Complete: {complete}\r\nETag: "v"\r\n'
            await peer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {kept.length}\r\n{more}\r\n".encode())
            return True
        return await self._give(peer, kept, headers)

    async def _take(self, peer: Peer, number: str, kept: KeptFile, headers: dict[str, str]) -> bool:
        left = int(headers["content-length"])
        if int(headers["upload-offset"]) != len(kept.content):
            await peer.reader.readexactly(left)
            await peer.write(_refusal(409, "CONFLICT"))
            return True
        cut = self._next_cut()
        kept.content += await peer.reader.readexactly(left if cut is None else min(left, cut))
        if cut is not None:
            return False
        await peer.write(self._state(number, "200 OK"))
        return True

    async def _give(self, peer: Peer, kept: KeptFile, headers: dict[str, str]) -> bool:
        start = int(headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        content, cut = bytes(kept.content[start:]), self._next_cut()
        status = "206 Partial Content" if start else "200 OK"
        head = answer(content, status=status, kind=kept.media_type, more='ETag: "v"\r\n')
        await peer.write(head if cut is None else head[: len(head) - len(content) + cut])
        await asyncio.sleep(0.01)  # a reset takes back what the client has not read
        return cut is None

    def _next_cut(self) -> int | None:
        return self.cuts.popleft() if self.cuts else None

    def _state(self, number: str, status: str) -> bytes:
        kept = self.files[number]
        done = len(kept.content) == kept.length
        state = {"id": number, "url": f"{URL}/{number}", "name": kept.name, "media_type": kept.media_type, "size": kept.length}
        state |= {"offset": len(kept.content), "complete": done, "expires_in": 3600} | ({"sha256": "ab"} if done else {})
        return answer(json.dumps(state).encode(), status=status)


def _refusal(status: int, reason: str) -> bytes:
    body = {"title": reason, "status": status, "detail": f"refused: {reason}", "reason": reason}
    return answer(json.dumps(body).encode(), status=f"{status} X", kind="application/problem+json")


async def _head_of(peer: Peer) -> Request | None:
    try:
        head = await peer.reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    line, *rest = head.decode().split("\r\n")[:-2]
    return Request(line, {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}, b"")
