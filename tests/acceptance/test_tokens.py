"""A hub with tokens, called with and without a token."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.client import text_message, texts
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, Process, environment, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.workers"


def rolecall(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [str(word) for word in (*ROLECALL, *words)]
    return subprocess.run(argv, capture_output=True, text=True, env=environment(env), cwd=ROOT, timeout=30, check=False)


def new_token(data: Path, *words: str) -> str:
    done = rolecall("tokens", "--data-dir", data, "new", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass
class Locked:
    hub: HubProcess
    worker: Process
    admin: str
    client_token: str
    other_client_token: str
    serves: str
    reads: str

    def rpc(self, token: str | None, method: str, params: dict[str, Any], role: str = "echo", **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.post(f"{self.hub.url}/agents/{role}/", json=body, headers={**shown, **headers}, trust_env=False)

    def get(self, token: str | None, path: str) -> httpx.Response:
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return httpx.get(f"{self.hub.url}{path}", headers=shown, trust_env=False)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    data = tmp_path_factory.mktemp("locked")
    admin = new_token(data, "--name", "root", "--kind", "admin")
    client_token, other_client_token = new_token(data, "--name", "anna"), new_token(data, "--name", "bert")
    serves = new_token(data, "--name", "farm", "--kind", "worker", "--role", "ech*")
    reads = new_token(data, "--name", "board", "--kind", "reader")
    with start_hub(data) as hub:
        env = {"ROLECALL_TOKEN": serves}
        with start_worker(f"{WORKERS}:instant", "echo:a", hub.url, log=data / "w.log", env=env, enrolled=False) as worker:
            found = Locked(hub, worker, admin, client_token, other_client_token, serves, reads)
            wait_for(lambda: found.get(admin, "/registry/agents/echo:a").status_code == 200)
            yield found


def test_without_a_token_only_cards_and_health_are_served(locked: Locked) -> None:
    for path in ("/livez", "/readyz", "/health", "/.well-known/agent-card.json", "/agents/echo/.well-known/agent-card.json"):
        assert locked.get(None, path).status_code == 200, path
    for path in (
        "/",
        "/metrics",
        "/registry/agents",
        "/agents",
        "/registry/tasks",
        "/registry/events",
        "/registry/tasks/events",
        "/tasks/x",
        "/v1/tasks/x",
    ):
        answer = locked.get(None, path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="rolecall"'), path
    refused = locked.rpc(None, "message/send", text_message("x"))
    assert refused.status_code == 401
    assert refused.json()["error"]["data"][0]["reason"] == "UNAUTHENTICATED"
    assert locked.get("rc_wrong", "/registry/agents").status_code == 401


def test_cards_declare_the_schemes_that_are_in_force(locked: Locked) -> None:
    card = locked.get(None, "/agents/echo/.well-known/agent-card.json").json()
    assert set(card["securitySchemes"]) == {"bearer", "apiKey"}
    assert card["security"] == [{"bearer": []}, {"apiKey": []}]


def test_both_headers_carry_a_token(locked: Locked) -> None:
    assert texts(locked.rpc(locked.client_token, "message/send", text_message("one")).json()["result"]) == ["one"]
    answer = locked.rpc(None, "message/send", text_message("two"), **{"X-API-Key": locked.client_token})
    assert texts(answer.json()["result"]) == ["two"]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "GetTask", "tasks/pushNotificationConfig/list"])
def test_a_foreign_task_gets_the_same_bytes_as_an_unknown_one(locked: Locked, method: str) -> None:
    task = locked.rpc(locked.client_token, "message/send", text_message("mine")).json()["result"]["id"]
    name = "taskId" if "push" in method else "id"
    other = "01a1ef91-0000-7000-8000-000000000000"
    foreign = locked.rpc(locked.other_client_token, method, {name: task})
    unknown = locked.rpc(locked.other_client_token, method, {name: other})
    assert foreign.text.replace(task, other) == unknown.text
    assert foreign.json()["error"]["code"] == -32001


@pytest.mark.parametrize(
    ("who", "method", "status"),
    [
        ("serves", "message/send", 403),
        ("reads", "message/send", 403),
        ("reads", "tasks/cancel", 403),
        ("reads", "tasks/get", 200),
    ],
)
def test_a_token_does_what_it_is_for(locked: Locked, who: str, method: str, status: int) -> None:
    params = text_message("x") if method == "message/send" else {"id": "t"}
    assert locked.rpc(getattr(locked, who), method, params).status_code == status


def test_a_worker_enrols_under_its_roles_and_beats_with_its_own_secret(locked: Locked) -> None:
    def put(token: str, role: str, body: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.put(f"{locked.hub.url}/registry/agents/{role}/z", json=body, headers=headers, trust_env=False)

    offer = {"url": "http://127.0.0.1:9/", "boot": "b1"}
    assert put(locked.serves, "other", offer).status_code == 403
    assert put(locked.client_token, "echo", offer).status_code == 403
    lease = put(locked.serves, "echoes", offer).json()
    beat = f"{locked.hub.url}/registry/agents/echoes:z/heartbeat"
    headers = {"Authorization": f"Bearer {locked.serves}"}
    assert httpx.post(beat, json={}, headers=headers, trust_env=False).status_code == 409
    proven = {"epoch": lease["epoch"], "lease": lease["lease"]}
    assert httpx.post(beat, json=proven, headers=headers, trust_env=False).status_code == 200
    taken = put(locked.admin, "echoes", {**offer, "boot": "b2"})
    assert (taken.status_code, taken.json()["reason"]) == (409, "CONFLICT")


def test_tokens_are_added_and_revoked_without_a_restart(locked: Locked) -> None:
    token = new_token(locked.hub.data_dir, "--name", "carl")
    wait_for(lambda: locked.get(token, "/registry/agents").status_code == 200, 3)
    token_list = rolecall("tokens", "--data-dir", locked.hub.data_dir, "ls")
    assert "carl" in token_list.stdout
    assert token not in token_list.stdout
    assert rolecall("tokens", "--data-dir", locked.hub.data_dir, "revoke", "carl").returncode == 0
    wait_for(lambda: locked.get(token, "/registry/agents").status_code == 401, 3)


def test_the_command_line_shows_its_token(locked: Locked) -> None:
    done = rolecall("send", "echo", "by hand", ROLECALL_HUB=locked.hub.url, ROLECALL_TOKEN=locked.client_token)
    assert (done.returncode, done.stdout.strip()) == (0, "by hand")
    assert rolecall("send", "echo", "x", ROLECALL_HUB=locked.hub.url).returncode == 4


def test_a_foreign_host_name_and_a_cross_site_request_are_refused(locked: Locked) -> None:
    named = httpx.get(f"{locked.hub.url}/livez", headers={"Host": "evil.example"}, trust_env=False)
    assert (named.status_code, named.json()["reason"]) == (421, "BAD_HOST")
    cross_site = locked.rpc(locked.client_token, "message/send", text_message("x"), **{"Sec-Fetch-Site": "cross-site"})
    assert cross_site.status_code == 403


def test_a_reachable_hub_does_not_start_without_tokens(tmp_path: Path) -> None:
    began = time.monotonic()
    done = rolecall("serve", "--host", "0.0.0.0", "--port", "0", "--data-dir", tmp_path)
    assert done.returncode == 2
    assert "rolecall tokens new" in done.stderr
    assert time.monotonic() - began < 15


def test_the_audit_log_records_who_did_what_and_no_content(tmp_path: Path) -> None:
    token, reads = new_token(tmp_path, "--name", "anna"), new_token(tmp_path, "--name", "board", "--kind", "reader")
    audit_file = tmp_path / "audit.log"
    with start_hub(tmp_path, audit_log=audit_file) as hub:
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("whispered words")}
        for shown, path in ((token, "/"), ("rc_wrong", "/"), (reads, "/"), (reads, "/v1/message:send")):
            headers = {"Authorization": f"Bearer {shown}"}
            httpx.post(f"{hub.url}/agents/nobody{path}", json=body, headers=headers, trust_env=False)
        for path in ("/t-1", "?context_id=c-1"):
            headers = {"Authorization": f"Bearer {token}"}
            httpx.delete(f"{hub.url}/registry/tasks{path}", headers=headers, trust_env=False)
    assert audit_file.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in audit_file.read_text().splitlines()]
    assert [(line["event"], line.get("who"), line["on"], line["outcome"]) for line in lines] == [
        ("message/send", "anna", "nobody", "role_unknown"),
        ("turned away", None, "/agents/nobody/", "unauthenticated"),
        ("turned away", "board", "/agents/nobody/", "forbidden"),
        ("turned away", "board", "/agents/nobody/v1/message:send", "forbidden"),
        ("erase", "anna", "t-1", "task_not_found"),
        ("erase", "anna", "holder anna, context c-1", "ok"),
    ]
    assert {line["peer"] for line in lines} == {"127.0.0.1"}
    assert "whispered" not in audit_file.read_text() + hub.output
    assert token not in audit_file.read_text() + hub.output
