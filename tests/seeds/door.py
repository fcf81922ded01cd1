"""A caller that only uses HTTP: it sends what a person would type, and keeps every answer unchanged."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import httpx

from tests.helpers.processes import wait_for

JsonObject = dict[str, Any]
RPC = "/a2a/jsonrpc"
NO_TASK = "01a1ef88-0000-7000-8000-000000000000"
NOWHERE = "http://127.0.0.1:9/"
ENDED = ("completed", "failed", "canceled", "rejected")


class Frame(NamedTuple):
    """One server-sent event. `at`: when it was received, in seconds of the monotonic clock."""

    id: str | None
    event: str | None
    data: JsonObject
    at: float

    @property
    def result(self) -> JsonObject:
        found: JsonObject = self.data["result"]
        return found


class RawClient:
    """Calls one hub."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=20, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.http.close()

    # --- JSON-RPC

    def answer(self, method: str, params: Any, path: str = RPC, *, call: Any = 1, **headers: str) -> JsonObject:
        """The whole response. The HTTP status is always 200; an error of a streaming call is its only event."""
        response = self.post(path, {"jsonrpc": "2.0", "id": call, "method": method, "params": params}, **headers)
        assert response.status_code == 200
        document: JsonObject = json.loads(response.text.removeprefix("data: "))
        assert (document["jsonrpc"], document["id"]) == ("2.0", call)
        assert ("result" in document) != ("error" in document)
        return document

    def call(self, method: str, params: Any, path: str = RPC, **headers: str) -> Any:
        document = self.answer(method, params, path, **headers)
        assert "result" in document, document
        return document["result"]

    def error(self, method: str, params: Any, path: str = RPC, **headers: str) -> JsonObject:
        document = self.answer(method, params, path, **headers)
        assert "error" in document, document
        error: JsonObject = document["error"]
        return error

    def code(self, method: str, params: Any, path: str = RPC, **headers: str) -> int:
        code: int = self.error(method, params, path, **headers)["code"]
        return code

    def send(self, role: str, text: str, *, method: str = "message/send", **members: Any) -> JsonObject:
        """Send a message to a role in 0.3."""
        result: JsonObject = self.call(method, message_v03(text, role, **members))
        return result

    # --- HTTP

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.post(path, content=content, headers={"Content-Type": "application/json", **spelled})

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.http.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    # --- streams

    @contextmanager
    def opened(self, method: str, params: Any, path: str = RPC, **headers: str) -> Iterator[Stream]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with self.opened_at(path, body, **headers) as stream:
            yield stream

    @contextmanager
    def opened_at(self, path: str, body: Any, **headers: str) -> Iterator[Stream]:
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.http.stream("POST", path, json=body, headers={"Accept": "text/event-stream", **spelled}) as response:
            yield Stream(response)

    def stream(self, method: str, params: Any, path: str = RPC, **headers: str) -> list[Frame]:
        """All frames, once the hub has closed the stream."""
        with self.opened(method, params, path, **headers) as stream:
            return list(stream)

    def events(self, method: str, params: Any, path: str = RPC, **headers: str) -> list[JsonObject]:
        return [frame.result for frame in self.stream(method, params, path, **headers)]

    # --- waiting

    def until(self, task: str, state: str, timeout: float = 10.0, path: str = RPC) -> JsonObject:
        """The task, once it is in that state."""
        found: JsonObject = {}

        def reached() -> bool:
            nonlocal found
            found = self.call("tasks/get", {"id": task}, path)
            return bool(found["status"]["state"] == state)

        wait(reached, timeout)
        return found

    # --- registration

    def enrol(self, name: str, url: str, **fields: Any) -> JsonObject:
        """Enrol in the flat form."""
        response = self.post("/registry/agents", {"name": name, "description": f"{name} here", "url": url, **fields})
        assert response.status_code in (200, 201), response.text
        lease: JsonObject = response.json()
        return lease

    def withdraw(self, name: str) -> None:
        assert self.http.delete(f"/registry/agents/{name}").status_code == 200

    @contextmanager
    def enrolled(self, name: str, url: str, **fields: Any) -> Iterator[JsonObject]:
        lease = self.enrol(name, url, **fields)
        try:
            yield lease
        finally:
            self.http.delete(f"/registry/agents/{lease['name']}")

    def agents(self, **query: str) -> list[JsonObject]:
        found: list[JsonObject] = self.http.get("/registry/agents", params=query).json()["agents"]
        return found


class Stream:
    """An open stream: iterate for the frames as they arrive. Comments are collected in `keep_alive_lines`."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.keep_alive_lines: list[str] = []
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Frame]:
        name: str | None = None
        event: str | None = None
        for line in self._lines:
            field, _, value = line.partition(": ")
            if line.startswith(":"):
                self.keep_alive_lines.append(line)
            elif field == "id":
                name = value
            elif field == "event":
                event = value
            elif field == "data":
                yield Frame(name, event, json.loads(value), time.monotonic())
                name = event = None


def message_v03(text: str, role: str | None = None, *, configuration: JsonObject | None = None, **members: Any) -> JsonObject:
    """The params of a message in 0.3."""
    message = {"kind": "message", "messageId": str(uuid4()), "role": "user", "parts": [{"kind": "text", "text": text}]}
    params: JsonObject = {"message": {**message, **members}}
    if role is not None:
        params["metadata"] = {"role": role}
    if configuration is not None:
        params["configuration"] = configuration
    return params


def message_v10(text: str, role: str | None = None, **members: Any) -> JsonObject:
    """The params of a message in 1.0."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **members}
    return {"message": message} | ({"tenant": role} if role is not None else {})


def message_v01(text: str, task: str | None = None, role: str | None = None, **members: Any) -> JsonObject:
    """The params of a message in 0.1, where the caller names the task."""
    params = {"id": task or str(uuid4()), "message": {"role": "user", "parts": [{"type": "text", "text": text}]}, **members}
    return params | ({"metadata": {"role": role}} if role is not None else {})


def texts(task: JsonObject) -> str:
    """All text of a task's artifacts."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"])


def data(task: JsonObject) -> JsonObject:
    """The first data part of a task's artifacts."""
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"] if "data" in part]
    found: JsonObject = parts[0]["data"]
    return found


def wait(until: Callable[[], bool], timeout: float = 10.0) -> None:
    wait_for(until, timeout)


def together(*jobs: Callable[[], Any]) -> list[Any]:
    """Run each job in a thread of its own and return their results."""
    results: list[Any] = [None] * len(jobs)

    def run(at: int, job: Callable[[], Any]) -> None:
        results[at] = job()

    threads = [threading.Thread(target=run, args=(at, job)) for at, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results
