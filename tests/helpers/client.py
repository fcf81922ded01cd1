"""A client without Rolecall's SDK: JSON-RPC and server-sent events over plain HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import dump, parse


def call(url: str, method: str, params: dict[str, Any], *, timeout: float = 30) -> dict[str, Any]:
    """The whole JSON-RPC response."""
    body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    response = httpx.post(url, json=body, timeout=timeout, trust_env=False)
    document: dict[str, Any] = response.json()
    return document


def text_message(text: str, **members: Any) -> dict[str, Any]:
    message = {"kind": "message", "role": "user", "messageId": str(uuid4()), "parts": [{"kind": "text", "text": text}]}
    return {"message": {**message, **members}}


def send(hub: str, role: str, text: str, *, timeout: float = 30, **members: Any) -> dict[str, Any]:
    """The task, or the error with its code."""
    answer = call(f"{hub}/agents/{role}/", "message/send", text_message(text, **members), timeout=timeout)
    found: dict[str, Any] = answer.get("result") or answer
    return found


def get_task(hub: str, task: str) -> dict[str, Any]:
    found: dict[str, Any] = call(f"{hub}/", "tasks/get", {"id": task})["result"]
    return found


def texts(task: dict[str, Any]) -> list[str]:
    return [part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"] if part["text"]]


@dataclass
class Reader:
    """Reads one task's stream in a thread, and records every frame with its cursor. Resumes it on demand."""

    hub: str
    role: str
    text: str
    frames: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    task: str = ""
    done: bool = False

    def start(self) -> threading.Thread:
        return self._thread(self.begin)

    def start_again(self) -> threading.Thread:
        return self._thread(self.come_back)

    def begin(self) -> None:
        self._read(f"{self.hub}/agents/{self.role}/", "message/stream", text_message(self.text), {})

    def come_back(self) -> None:
        """Resume after the last cursor; the Task that opens the answer is not a new event."""
        headers = {"Last-Event-ID": str(self.cursor)} if self.cursor else {}
        self._read(f"{self.hub}/", "tasks/resubscribe", {"id": self.task}, headers)

    @property
    def cursor(self) -> int:
        return self.frames[-1][0] if self.frames else 0

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for _, event in self.frames]

    @property
    def chunks(self) -> list[str]:
        """Every text chunk that was an event, in order."""
        updates = [event for event in self.events if event["kind"] == "artifact-update"]
        return [part["text"] for update in updates for part in update["artifact"]["parts"] if part["text"]]

    @property
    def state(self) -> str:
        states = [event["status"]["state"] for event in self.events if "status" in event]
        return states[-1] if states else ""

    def _thread(self, work: Any) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"reader of {self.role}", daemon=True)
        thread.start()
        return thread

    def _read(self, url: str, method: str, params: dict[str, Any], headers: dict[str, str]) -> None:
        body = dump({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        headers = {"Content-Type": "application/json", **headers}
        resumed_at = self.cursor
        try:
            with httpx.stream("POST", url, content=body, headers=headers, timeout=60, trust_env=False) as response:
                for cursor, event in _frames(response):
                    self._take(cursor, event, resumed_at)
        except httpx.HTTPError:
            return

    def _take(self, cursor: int, event: dict[str, Any], resumed_at: int) -> None:
        if "error" in event:
            self.errors.append(event["error"])
            return
        found = event["result"]
        self.task = self.task or found.get("taskId") or found["id"]
        if not (resumed_at and cursor == resumed_at and found["kind"] == "task"):
            self.frames.append((cursor, found))
        if found.get("final") or found.get("status", {}).get("state") in ("completed", "failed", "canceled", "rejected"):
            self.done = True


def _frames(response: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = FrameReader(limit=16 * 1024 * 1024)
    for chunk in response.iter_raw():
        for frame in reader.feed(chunk):
            if frame.data:
                yield int(frame.id or 0), parse(frame.data)
