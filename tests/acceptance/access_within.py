"""Calls in a task (`A2A-Parent`), in every binding; and a hub with workers whose leases the test holds."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.acceptance.access_table import METHODS, PREFIXES, REST
from tests.helpers.processes import HubProcess, wait_for

HOLDERS = {
    "anna": Principal("anna", Kind.CLIENT),
    "bert": Principal("bert", Kind.CLIENT),
    "carl": Principal("carl", Kind.CLIENT),
    "zoe": Principal("zoe", Kind.CLIENT, "acme"),
    "board": Principal("board", Kind.READER),
    "farm": Principal("farm", Kind.WORKER, roles=("*",)),
    "rival": Principal("rival", Kind.WORKER, roles=("*",)),
    "zfarm": Principal("zfarm", Kind.WORKER, "acme", roles=("*",)),
    "root": Principal("root", Kind.ADMIN),
}
CALLED = "shouter"
"""The role that is called in tasks."""
_REASON = re.compile(r'"reason":"([A-Z_]+)"')


class Ask(NamedTuple):
    """One request. `of`: what it does: send, get, cancel, subscribe, answer."""

    of: str
    binding: str
    method: str
    path: str
    body: Any = None
    version: str | None = None


def asks(task: str) -> list[Ask]:
    """Everything that can be asked within a task, in every binding. `task`: the one that is read, answered, cancelled."""
    return [
        *_in_json_rpc("0.3", ("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"), task),
        *_in_json_rpc("1.0", ("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"), task),
        *_in_rest("0.3", "/v1", task),
        *_in_rest("1.0", "", task),
    ]


def others() -> list[Ask]:
    """All the rest of the access table: what cannot be asked within a task."""
    at = f"/agents/{CALLED}"
    asked = {one.body["method"] for one in asks("t") if isinstance(one.body, dict) and "method" in one.body}
    found = [
        Ask("other", "json-rpc", "POST", f"{at}/", _request(name, next(iter(row.names.values())).params("t", "t")))
        for name, row in METHODS.items()
        if name not in asked
    ]
    paths = {(one.version, one.method, one.path) for one in asks("t") if one.version}
    for version, rows in REST.items():
        base = at + PREFIXES[version][0]
        for row in rows:
            path, body = base + row.path.format(id="t", mine="t"), row.body("t", "t") if row.body else None
            if (version, row.method, path) not in paths and not path.endswith(":subscribe"):
                found.append(Ask("other", "rest", row.method, path, body, version))
    return found


def message(version: str, **members: Any) -> dict[str, Any]:
    part = {"text": "x"} if version == "1.0" else {"kind": "text", "text": "x"}
    return {
        "message": {
            "role": "ROLE_USER" if version == "1.0" else "user",
            "messageId": str(uuid4()),
            "parts": [part],
            **members,
        }
    }


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def _in_json_rpc(version: str, methods: tuple[str, ...], task: str) -> list[Ask]:
    send, stream, get, cancel, subscribe = methods
    found = [("send", _request(send, message(version))), ("send", _request(stream, message(version)))]
    found += [("answer", _request(send, message(version, taskId=task)))]
    found += [("send", _request(send, message(version, referenceTaskIds=[task])))] if task else []
    found += [(of, _request(name, {"id": task})) for of, name in (("get", get), ("cancel", cancel), ("subscribe", subscribe))]
    single = [Ask(of, f"json-rpc {version}", "POST", f"/agents/{CALLED}/", body) for of, body in found]
    batch = [Ask(of, f"batch {version}", "POST", f"/agents/{CALLED}/", [body]) for of, body in found if _fits_batch(body)]
    return single + batch


def _fits_batch(body: dict[str, Any]) -> bool:
    return "tream" not in body["method"] and "ubscribe" not in body["method"]


def _in_rest(version: str, base: str, task: str) -> list[Ask]:
    at = f"/agents/{CALLED}{base}"
    rows = [
        ("send", "POST", "/message:send", message(version)),
        ("send", "POST", "/message:stream", message(version)),
        ("answer", "POST", "/message:send", message(version, taskId=task)),
        ("get", "GET", f"/tasks/{task}", None),
        ("cancel", "POST", f"/tasks/{task}:cancel", {}),
        ("subscribe", "GET", f"/tasks/{task}:subscribe", None),
    ]
    return [Ask(of, f"rest {version}", method, at + path, body, version) for of, method, path, body in rows]


def reason_of(answer: httpx.Response) -> str:
    """Of a refusal; `TASK_NOT_FOUND` where a dialect tells no reason with it; empty: it is none."""
    text = answer.text
    if found := _REASON.search(text):
        return found[1]
    if "-32001" in text or answer.status_code == 404:
        return "TASK_NOT_FOUND"
    if "-32004" in text:
        return "UNSUPPORTED_OPERATION"
    return "INVALID_PARAMS" if "-32602" in text or answer.status_code == 400 else ""


@dataclass
class Within:
    """`url`: where a worker runs that works for long; the test has leases for it, under several names."""

    hub: HubProcess
    tokens: dict[str, str]
    http: httpx.Client
    url: str = ""
    card: dict[str, Any] = field(default_factory=dict)

    def ask(self, who: str, one: Ask, parent: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who in self.tokens else {}
        headers |= {"A2A-Version": one.version} if one.version else {}
        headers |= {"A2A-Parent": parent} if parent is not None else {}
        return self.http.request(one.method, self.hub.url + one.path, json=one.body, headers=headers)

    def lease(self, who: str, name: str, boot: str = "b") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        offer = {"url": self.url, "card": self.card, "boot": boot}
        address = f"{self.hub.url}/registry/agents/{name.replace(':', '/')}"
        lease: dict[str, Any] = self.http.put(address, json=offer, headers=headers).json()
        assert "lease" in lease, lease
        return lease

    def task(self, who: str, name: str) -> str:
        """A task of that holder that works at this worker."""
        role = name.partition(":")[0]
        params = {**message("0.3"), "metadata": {"role": name}, "configuration": {"blocking": False}}
        one = Ask("send", "json-rpc 0.3", "POST", f"/agents/{role}/", _request("message/send", params))
        found = self.ask(who, one).json()
        task_id = str(found["result"]["id"])
        wait_for(lambda: self.state(who, task_id) == "working")
        return task_id

    def child(self, lease: dict[str, Any], task: str, *words: str, role: str = CALLED, who: str = "farm") -> dict[str, Any]:
        params = {**message("0.3"), "configuration": {"blocking": False}}
        one = Ask("send", "json-rpc 0.3", "POST", f"/agents/{role}/", _request("message/send", params))
        answer: dict[str, Any] = self.ask(who, one, parent_header(lease, task, *words)).json()
        return answer

    def state(self, who: str, task: str) -> str:
        found = self.ask(who, Ask("get", "", "POST", "/", _request("tasks/get", {"id": task}))).json()
        return str(found["result"]["status"]["state"])

    def cancel(self, who: str, task: str) -> None:
        answer = self.ask(who, Ask("cancel", "", "POST", "/", _request("tasks/cancel", {"id": task})))
        assert answer.json()["result"]["status"]["state"] == "canceled", answer.text

    def revoke(self, who: str) -> None:
        path = self.hub.data_dir / "tokens.json"
        listed = json.loads(path.read_text())
        listed["tokens"] = [one for one in listed["tokens"] if one["name"] != who]
        path.write_text(json.dumps(listed))

    def tree(self, who: str, task: str) -> list[dict[str, Any]]:
        found = self.ask(who, Ask("get", "", "GET", f"/registry/tasks/{task}/tree")).json()
        return list(found["tasks"])

    def tasks(self, who: str, role: str = CALLED) -> int:
        return int(self.ask(who, Ask("get", "", "GET", f"/registry/tasks?role={role}")).json()["total"])


def parent_header(proof: dict[str, Any], task: str, *words: str, **changed: Any) -> str:
    members = {"task": task, "worker": proof["name"], "epoch": proof["epoch"], "lease": proof["lease"], **changed}
    return "; ".join([*(f"{name}={value}" for name, value in members.items()), *words])


def make_tokens(data: Any) -> dict[str, str]:
    data.mkdir(parents=True, exist_ok=True)
    return {who: new(data / "tokens.json", holder, lasts=None, now=0.0)[0] for who, holder in HOLDERS.items()}
