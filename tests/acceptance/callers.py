"""Clients for tests of the promises to callers: one that reads a stream and resumes it, and many that send."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx

from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import dump, parse
from tests.helpers.client import text_message, texts
from tests.helpers.processes import HubProcess, wait_for

Frame = tuple[int, dict[str, Any]]
"""A cursor and its event."""


def numbers(count: int) -> list[str]:
    return [f"{n} " for n in range(count)]


@dataclass
class ClientStream:
    """A client's stream of one task: every frame with its cursor, the times at which bytes came, and the last bytes."""

    hub: str
    role: str
    text: str
    task: str = ""
    frames: list[Frame] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    tail: bytes = b""

    def __post_init__(self) -> None:
        self.params = text_message(self.text)

    @property
    def cursor(self) -> int:
        return self.frames[-1][0] if self.frames else 0

    @property
    def chunks(self) -> list[str]:
        return texts({"artifacts": [event["artifact"] for _, event in self.frames if "artifact" in event]})

    @property
    def ended(self) -> bool:
        return bool(self.frames) and self.frames[-1][1].get("final") is True

    @property
    def longest_gap(self) -> float:
        return max(after - before for before, after in zip(self.came, self.came[1:], strict=False))

    async def begin(self, http: httpx.AsyncClient) -> None:
        async for cursor, event in self._frames(http, f"/agents/{self.role}/", "message/stream", self.params, {}):
            self.task = self.task or event["id"]
            self.frames.append((cursor, event))

    async def come_back(self, http: httpx.AsyncClient) -> None:
        """The first frame is the task so far. All others are new events."""
        at = self.cursor
        async for cursor, event in self.resume(http, at):
            if cursor != at:
                self.frames.append((cursor, event))

    async def resume(self, http: httpx.AsyncClient, after: int) -> AsyncGenerator[Frame]:
        headers = {"Last-Event-ID": str(after)}
        async for frame in self._frames(http, "/", "tasks/resubscribe", {"id": self.task}, headers):
            yield frame

    async def _frames(
        self, http: httpx.AsyncClient, path: str, method: str, params: dict[str, Any], headers: dict[str, str]
    ) -> AsyncGenerator[Frame]:
        body = dump({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        headers = {"Content-Type": "application/json", **headers}
        self.came.append(time.monotonic())
        reader = FrameReader(limit=16 * 1024 * 1024)
        async with http.stream("POST", self.hub + path, content=body, headers=headers) as response:
            async for piece in response.aiter_raw():
                self.came.append(time.monotonic())
                self.tail = (self.tail + piece)[-100:]
                for frame in reader.feed(piece):
                    yield int(frame.id or 0), parse(frame.data)["result"]


class Load:
    """Callers that send to a role repeatedly, each as soon as it has its answer. Every call takes its worker a moment."""

    def __init__(self, hub: HubProcess, role: str, callers: int) -> None:
        self._url = f"{hub.url}/agents/{role}/"
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(callers)]
        self.answers: list[tuple[float, dict[str, Any]]] = []
        """The start time of each call, and its answer."""

    def _run(self) -> None:
        with httpx.Client(trust_env=False, timeout=20) as client:
            while not self._over.is_set():
                body = {"jsonrpc": "2.0", "id": "1", "method": "message/send", "params": text_message("3 0.02")}
                began = time.monotonic()
                self.answers.append((began, client.post(self._url, json=body).json()))

    def more(self, calls: int) -> None:
        """Wait until so many further calls have been answered."""
        enough = len(self.answers) + calls
        wait_for(lambda: len(self.answers) >= enough, 20)

    def failures(self) -> list[tuple[float, dict[str, Any]]]:
        return [
            (began, answer)
            for began, answer in self.answers
            if "result" not in answer or texts(answer["result"]) != numbers(3) or "completed" not in str(answer)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.more(40)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads)
