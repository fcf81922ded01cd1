"""A hub with tokens, a worker that asks a question, and token holders in two workspaces with tasks and dead letters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from hub.identity.tokens import new
from rolecall.model.principal import Kind, Principal
from tests.acceptance.access_table import CAN_OWN, HOOK
from tests.helpers.client import text_message
from tests.helpers.processes import HubProcess, wait_for

ROLE, WORKER = "asker", "asker:a"
HIDDEN_ROLE, HIDDEN = "hidden", "hidden:z"
OFFER = {"url": "http://127.0.0.1:9/", "boot": "b"}
_CHANGING = re.compile(r'[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[\d:.]+Z|(?<="expires_in":)[\d.]+')

_HOLDERS = {
    "reader": Principal("board", Kind.READER),
    "owner": Principal("anna", Kind.CLIENT),
    "other": Principal("bert", Kind.CLIENT),
    "stranger": Principal("zoe", Kind.CLIENT, "acme"),
    "worker": Principal("farm", Kind.WORKER, roles=(ROLE, "mine", "spare*")),
    "rival": Principal("rival", Kind.WORKER, roles=("rival",)),
    "other-farm": Principal("zfarm", Kind.WORKER, "acme", roles=("*",)),
    "admin": Principal("root", Kind.ADMIN),
}


class Ids(NamedTuple):
    """`own` is None if the holder cannot have one."""

    own: str | None
    foreign: str
    unknown: str


def make_tokens(data: Path) -> dict[str, str]:
    data.mkdir(parents=True, exist_ok=True)
    return {who: new(data / "tokens.json", holder, lasts=None, now=0.0)[0] for who, holder in _HOLDERS.items()}


@dataclass
class World:
    hub: HubProcess
    tokens: dict[str, str]
    http: httpx.Client
    kept: dict[tuple[str, str], Any] = field(default_factory=dict)

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        token = {"none": None, "wrong": "rc_wrong"}.get(who, self.tokens.get(who))
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return self.http.request(method, self.hub.url + path, json=body, headers={**shown, **headers})

    def rpc(self, who: str, method: str, params: dict[str, Any], role: str = ROLE, **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return self.ask(who, "POST", f"/agents/{role}/", body, **headers)

    def result(self, who: str, method: str, params: dict[str, Any]) -> Any:
        answer = self.rpc(who, method, params).json()
        assert "result" in answer, answer
        return answer["result"]

    def task(self, who: str, *configs: str, hook: str = HOOK) -> dict[str, Any]:
        """A new task of this holder that waits for an answer."""
        made: dict[str, Any] = self.result(who, "message/send", text_message("what?"))
        assert made["status"]["state"] == "input-required"
        for config in configs:
            push = {"taskId": made["id"], "pushNotificationConfig": {"id": config, "url": hook}}
            self.result(who, "tasks/pushNotificationConfig/set", push)
        return made

    def file(self, who: str) -> str:
        """A new file of this holder."""
        made = self.ask(who, "POST", "/registry/files?name=a.txt", "its text").json()
        assert made["complete"], made
        return str(made["id"])

    def kept_task(self, who: str) -> dict[str, Any]:
        """A task of this holder, with a config. No test changes it."""
        return self._once(("task", who), lambda: self.task(who, "c", f"cfg-{who}"))

    def ids(self, of: str, who: str, *, fresh: bool = False, changes: bool = False) -> Ids:
        """`fresh`: the foreign id must be new, as the call may take it as a name. `changes`: the call changes the own one."""
        them = "other" if who == "owner" else "owner"
        can = who in CAN_OWN
        if of == "nothing":
            return Ids("-", "-", "-")
        if of == "role":
            other_workspace = who == "stranger"
            return Ids(HIDDEN_ROLE, ROLE, like(ROLE)) if other_workspace else Ids(ROLE, HIDDEN_ROLE, like(HIDDEN_ROLE))
        if of == "token":
            other_token = self._page_token(them)
            time, _, task = other_token.partition("/")
            return Ids(self._page_token(who) if can else None, other_token, f"{time}/{like(task)}")
        if of == "file":
            own = self.file(who) if can else None
            foreign = self._once(("file", them), lambda: self.file(them))
            return Ids(own, foreign, "0" * len(foreign))
        if of == "config":
            return Ids(f"cfg-{who}" if can else None, f"cfg-{them}", f"xxx-{them}")
        member = {"task": "id", "context": "contextId"}[of]
        foreign = (self.task(them) if fresh else self.kept_task(them))[member]
        own = (self.task(who, "c") if changes else self.kept_task(who))[member] if can else None
        return Ids(own, foreign, like(foreign))

    def lease(self, who: str, role: str, instance: str) -> dict[str, Any]:
        answer = self.ask(who, "PUT", f"/registry/agents/{role}/{instance}", OFFER)
        assert answer.status_code in (200, 201), answer.text
        lease: dict[str, Any] = answer.json()
        return lease

    def dead_letter(self, who: str) -> str:
        """A task whose config `c` has a dead letter: the worker answers 404 at that address."""
        return str(self._once(("letter", who), lambda: self._make_dead_letter(who)))

    def _make_dead_letter(self, who: str) -> str:
        worker = self.ask("admin", "GET", f"/registry/agents/{WORKER}").json()["url"]
        task = self.task(who, "c", hook=f"{worker.rstrip('/')}/nothing")["id"]
        self.result(who, "tasks/cancel", {"id": task})
        wait_for(lambda: task in self.ask(who, "GET", "/registry/push/dead-letters").text)
        return str(task)

    def _page_token(self, who: str) -> str:
        def first_page() -> Any:
            self.task(who), self.task(who)
            return self.result(who, "ListTasks", {"pageSize": 1})["nextPageToken"]

        return str(self._once(("token", who), first_page))

    def _once(self, key: tuple[str, str], make: Any) -> Any:
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def like(name: str) -> str:
    """An unknown id of the same form."""
    return str(uuid4()) if len(name) == 36 else "x" * len(name)


def outcome(answer: httpx.Response) -> str:
    """`ok`, the JSON-RPC code, or the HTTP status."""
    if answer.status_code >= 300:
        return str(answer.status_code)
    text = answer.text
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        text = next((line[6:] for line in text.splitlines() if line.startswith("data: ")), "{}")
    found = re.search(r'^\{"jsonrpc":"2\.0","id":7,"error":\{"code":(-\d+)', text)
    return found[1] if found else "ok"


def same(foreign: httpx.Response, unknown: httpx.Response, ids: Ids, *, made: bool = False, at_work: bool = False) -> None:
    """The two answers have the same bytes except for the requested id. `made`: also except for new ids and times. `at_work`:
    also except for the progress of the new task.
    """
    first, second = foreign.content.replace(ids.foreign.encode(), ids.unknown.encode()), unknown.content
    if made:
        first, second = (_CHANGING.sub("~", text.decode()).encode() for text in (first, second))
    if at_work:
        first, second = (text.partition(b',"status":')[0] for text in (first, second))
    assert first == second, f"{first.decode()}\n{second.decode()}"
    assert foreign.status_code == unknown.status_code
    # Whether the connection stays open depends on whether the request's body arrived before its answer.
    may_vary = {"date", "connection", "content-length"} if made else {"date", "connection"}
    headers = [{name: value for name, value in answer.headers.items() if name not in may_vary} for answer in (foreign, unknown)]
    assert headers[0] == headers[1]
