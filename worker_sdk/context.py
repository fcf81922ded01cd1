"""What a handler can read about its task."""

from __future__ import annotations

from rolecall.model.a2a import JsonObject
from rolecall.model.command import Send
from worker_sdk.words import Message


class Task:
    """The current task. After `yield NeedInput(…)` returns, `message`, `metadata` and `trace` are those of the newest turn."""

    __slots__ = ("_send", "context_id", "id")

    def __init__(self, task_id: str, context_id: str, send: Send) -> None:
        self.id = task_id
        self.context_id = context_id
        self._send = send

    @property
    def message(self) -> Message:
        return Message(self._send.params["message"])

    @property
    def metadata(self) -> JsonObject:
        """The metadata of the request, not of the message."""
        return self._send.params.get("metadata") or {}

    @property
    def trace(self) -> str | None:
        """The request's `traceparent`, for calls that the handler makes."""
        return self._send.trace

    def turn(self, send: Send) -> None:
        self._send = send

    def __repr__(self) -> str:
        return f"Task({self.id!r})"
