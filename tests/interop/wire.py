"""A2A without any SDK: one interface of a card, called as its version and binding have it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from tests.interop.content import Event, Json, Task, event_0_3, event_1_0

_METHODS = {
    "1.0": {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "push": "CreateTaskPushNotificationConfig",
        "card": "GetExtendedAgentCard",
    },
    "0.3": {
        "send": "message/send",
        "stream": "message/stream",
        "push": "tasks/pushNotificationConfig/set",
        "card": "agent/getAuthenticatedExtendedCard",
    },
}
_ADDRESSES = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "push": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "card": ("GET", "/extendedAgentCard"),
}


class Interface(NamedTuple):
    """As a card lists it."""

    binding: str
    version: str
    url: str

    def send(self, text: str, *, role: str, headers: dict[str, str] | None = None) -> tuple[Task, httpx.Response]:
        response = self._say("send", self._message(text, role), headers=headers)
        task = self._read(self.result(response))
        assert isinstance(task, Task), task
        return task, response

    def stream(self, text: str, *, role: str) -> list[Event]:
        response = self._say("stream", self._message(text, role))
        assert response.headers["content-type"].startswith("text/event-stream")
        return [self._read(document if self.rest else document["result"]) for document in _events(response.text)]

    def set_push(self, task: str, url: str) -> Any:
        flat = {"taskId": task, "id": "one", "url": url}
        nested = {"taskId": task, "pushNotificationConfig": {"id": "one", "url": url}}
        return self.result(self._say("push", flat if self.version == "1.0" else nested))

    def refused(self, operation: str, params: Json | None = None, *, version: str | None = None) -> tuple[int, str]:
        """The code and the reason that 1.0 adds; of REST the HTTP status in place of the code."""
        response = self._say(operation, params or {}, headers={"A2A-Version": version} if version else None)
        error = response.json()["error"]
        if self.rest:
            assert error["code"] == response.status_code
            return response.status_code, error["details"][0]["reason"]
        assert response.status_code == 200
        return error["code"], error["data"][0]["reason"] if error.get("data") else ""

    @property
    def rest(self) -> bool:
        return self.binding == "HTTP+JSON"

    def result(self, response: httpx.Response) -> Any:
        assert response.status_code == 200, response.text
        document = response.json()
        if self.rest:
            return document
        assert document["id"] == "7" and "error" not in document, document
        return document["result"]

    def _say(self, operation: str, params: Json, *, headers: dict[str, str] | None = None) -> httpx.Response:
        sent = {**({"A2A-Version": "1.0"} if self.version == "1.0" else {}), **(headers or {})}
        if self.rest:
            method, path = _ADDRESSES[operation]
            body = params if method == "POST" else None
            where = self.url + path.format(**params)
            return httpx.request(method, where, json=body, headers=sent, timeout=20, trust_env=False)
        body = {"jsonrpc": "2.0", "id": "7", "method": _METHODS[self.version][operation], "params": params}
        return httpx.post(self.url, json=body, headers=sent, timeout=20, trust_env=False)

    def _message(self, text: str, role: str) -> Json:
        message: Json = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        if self.version == "0.3":
            message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
        return {"message": message, "metadata": {"role": role}}

    def _read(self, document: Json) -> Event:
        return event_1_0(document) if self.version == "1.0" else event_0_3(document)


def card_of(url: str, *, version: str = "") -> Json:
    headers = {"A2A-Version": version} if version else {}
    response = httpx.get(f"{url.rstrip('/')}/.well-known/agent-card.json", headers=headers, trust_env=False)
    assert response.status_code == 200
    card: Json = response.json()
    return card


def interfaces_of(card: Json) -> list[Interface]:
    """All that it lists, in the members of both versions."""
    found = [
        Interface(one["protocolBinding"], one["protocolVersion"], one["url"]) for one in card.get("supportedInterfaces", ())
    ]
    if "url" in card:
        assert card["protocolVersion"] == "0.3.0"
        found.append(Interface(card["preferredTransport"], "0.3", card["url"]))
        found += [Interface(one["transport"], "0.3", one["url"]) for one in card.get("additionalInterfaces", ())]
    return list(dict.fromkeys(found))


def _events(text: str) -> Iterator[Json]:
    for line in text.splitlines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))
