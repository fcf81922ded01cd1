"""The clients that the tests play through: official ones as processes of their own, and this project's beside them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.helpers.processes import ROOT, environment
from worker_sdk import HubClient
from worker_sdk.errors import RolecallError
from worker_sdk.stream import HubStream

Json = dict[str, Any]
_PATIENCE = 30.0


class Refused(Exception):
    """What the client raised: the name of its class, the JSON-RPC code that its user can see, and the text."""

    def __init__(self, kind: str, code: int | None, message: str) -> None:
        super().__init__(f"{kind} ({code}): {message}")
        self.kind, self.code, self.message = kind, code, message


class Client(Protocol):
    def call(self, op: str, **request: Any) -> Any:
        """One of: card, send, stream, resubscribe, get, cancel, legacy. Streams answer `{events, task}`."""

    def begin(self, op: str, **request: Any) -> Pending:
        """The same without waiting for it."""


class Pending:
    def __init__(self, what: str) -> None:
        self._what = what
        self._done = threading.Event()
        self._reply: Json = {}

    def settle(self, reply: Json) -> None:
        self._reply = reply
        self._done.set()

    def result(self) -> Any:
        assert self._done.wait(_PATIENCE), f"{self._what}: no answer within {_PATIENCE:g} s"
        if "error" in self._reply:
            error = self._reply["error"]
            raise Refused(error["type"], error["code"], error["message"])
        return self._reply["result"]


class DrivenClient:
    """An official client in its own environment, one line per call."""

    def __init__(self, argv: Sequence[str | Path], log: Path) -> None:
        self._log = log.open("wb")
        self._popen = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=environment({}),
            text=True,
        )
        self._pending: dict[int, Pending] = {}
        self._reader = threading.Thread(target=self._read, name="answers of a driven client", daemon=True)
        self._reader.start()

    def call(self, op: str, **request: Any) -> Any:
        return self.begin(op, **request).result()

    def begin(self, op: str, **request: Any) -> Pending:
        number = len(self._pending) + 1
        self._pending[number] = pending = Pending(f"{op} {request}")
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"id": number, "op": op, **request}) + "\n")
        self._popen.stdin.flush()
        return pending

    def close(self) -> None:
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait(5)
        self._reader.join(5)
        self._popen.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            reply = json.loads(line)
            self._pending[reply["id"]].settle(reply)


class OwnClient:
    """This project's HubClient behind the same face, so that the same tests run on it."""

    def call(self, op: str, **request: Any) -> Any:
        async def run() -> Any:
            hub, _, role = str(request["url"]).rstrip("/").partition("/agents/")
            async with HubClient(hub) as client:
                return await self._run(client, op, role, request)

        try:
            return asyncio.run(asyncio.wait_for(run(), _PATIENCE))
        except RolecallError as error:
            raise Refused(type(error).__name__, error.code, str(error)) from error

    def begin(self, op: str, **request: Any) -> Pending:
        pending = Pending(f"{op} {request}")

        def run() -> None:
            try:
                pending.settle({"result": self.call(op, **request)})
            except Refused as error:
                pending.settle({"error": {"type": error.kind, "code": error.code, "message": error.message}})

        threading.Thread(target=run, name=pending._what, daemon=True).start()
        return pending

    async def _run(self, client: HubClient, op: str, role: str, request: Json) -> Any:
        if op == "get":
            return (await client.get_task(request["task"], history_length=request.get("history"))).raw
        if op == "cancel":
            return (await client.cancel_task(request["task"])).raw
        if op == "resubscribe":
            return await self._read(client.follow_task(request["task"]), request)
        words: Any = request["text"]
        if "message_id" in request:
            words = {"messageId": request["message_id"], "parts": [{"kind": "text", "text": words}]}
        about = {"task_id": request.get("task"), "context_id": request.get("context")}
        if op == "stream":
            return await self._read(client.stream_to_agent(role, words, **about), request)
        assert op == "send", op
        return (await client.send_to_agent(role, words, **about, blocking=request.get("blocking", True))).raw

    async def _read(self, stream: HubStream, request: Json) -> Json:
        events: list[Json] = []
        async with stream:
            async for event in stream:
                events.append(event.raw)
                if len(events) == request.get("take"):
                    break
        return {"events": events, "task": None}
