"""A client that relies on the promises: it resumes with its cursor, or sends the same message again if it has none."""

from __future__ import annotations

import time
from typing import Any

import httpx

from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import NotJson, dump, parse
from tests.acceptance.faults.history import Record
from tests.helpers.client import call

_TERMINAL = ("completed", "failed", "canceled", "rejected")
_TRY_LATER = ("HUB_DRAINING", "OVERLOADED")
_PAUSE = 0.1


class Caller:
    """Makes one call and records what it receives, until the call ends or `patience` seconds have passed."""

    def __init__(self, url: str, record: Record, *, interval: float, patience: float) -> None:
        self._url = url
        self._record = record
        self._deadline = time.monotonic() + patience
        text = f"{record.many} {interval}"
        message = {"kind": "message", "role": "user", "messageId": record.message_id, "parts": [{"kind": "text", "text": text}]}
        self._params = {"message": message}

    def run(self) -> None:
        attempt = self._stream if self._record.streamed else self._send
        while not self._record.ended and time.monotonic() < self._deadline:
            try:
                attempt()
            except (httpx.HTTPError, NotJson, ValueError):
                self._record.resumed += 1
            if not self._record.ended:
                time.sleep(_PAUSE)

    def _send(self) -> None:
        path = f"{self._url}/agents/{self._record.role}/"
        answer = call(path, "message/send", self._params, timeout=15)
        if "error" in answer:
            self._refused(answer["error"])
            return
        task = answer["result"]
        self._record.task, self._record.state = task["id"], task["status"]["state"]
        # A stopping hub answers with the current task. Sending the same message again waits for its end.
        self._record.ended = self._record.state in _TERMINAL

    def _stream(self) -> None:
        cursor = self._record.frames[-1][0] if self._record.frames else 0
        if self._record.task:
            path, method, params = f"{self._url}/", "tasks/resubscribe", {"id": self._record.task}
        else:
            path, method, params = f"{self._url}/agents/{self._record.role}/", "message/stream", self._params
        headers = {"Content-Type": "application/json", **({"Last-Event-ID": str(cursor)} if cursor else {})}
        body = dump({"jsonrpc": "2.0", "id": "1", "method": method, "params": params})
        timeout = httpx.Timeout(5, read=4)
        reader = FrameReader(limit=16 * 1024 * 1024)
        with httpx.stream("POST", path, content=body, headers=headers, timeout=timeout, trust_env=False) as response:
            for chunk in response.iter_raw():
                for frame in reader.feed(chunk):
                    self._record_frame(int(frame.id or 0), parse(frame.data), cursor)
                    if self._record.ended:
                        return

    def _record_frame(self, cursor: int, envelope: dict[str, Any], resumed_at: int) -> None:
        if "error" in envelope:
            self._refused(envelope["error"])
            return
        event = envelope["result"]
        record = self._record
        record.task = record.task or event.get("taskId") or event["id"]
        state = event.get("status", {}).get("state", "")
        if not (resumed_at and cursor == resumed_at and event["kind"] == "task"):
            record.frames.append((cursor, event))
        record.state = state or record.state
        record.ended = state in _TERMINAL

    def _refused(self, error: dict[str, Any]) -> None:
        reason = (error.get("data") or [{}])[0].get("reason", str(error["code"]))
        if reason in _TRY_LATER:
            return
        self._record.refusal = reason
        self._record.ended = True
