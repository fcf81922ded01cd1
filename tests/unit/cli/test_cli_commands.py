"""The commands about workers, roles, tasks and settings, and what holds for all of them."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from hub.settings.model import SPECS
from rolecall.cli import output, run
from tests.helpers.certificates import new_authority
from tests.helpers.processes import ROOT
from tests.unit.cli.scripted_hub import Response, ScriptedHub, scripted_hub, status, task


def _agent(role: str, instance: str, **more: Any) -> dict[str, Any]:
    agent = {"name": f"{role}:{instance}", "role": role, "instance_id": instance, "description": f"does {role}"}
    agent |= {"url": "http://127.0.0.1:1/", "capabilities": {"streaming": True}, "state": "ready", "expires_in": 93.5}
    return agent | {"load": {"in_flight": 1, "capacity": 4}, "skills": [{"id": f"{role}-skill"}]} | more


@pytest.fixture
def hub_with_workers(hub: ScriptedHub) -> ScriptedHub:
    first = {
        "agents": [_agent("echo", "a"), _agent("echo", "b", state="draining", expires_in=None)],
        "count": 2,
        "next_cursor": "n",
    }
    second = {"agents": [_agent("planner", "x", load={"in_flight": 0, "capacity": None})], "count": 1, "next_cursor": None}
    hub.on("GET /registry/agents", Response(first), Response(second), Response(first), Response(second))
    return hub


def test_agents_of_all_pages_stand_in_one_aligned_table(
    hub_with_workers: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["agents", "ls", "--role", "echo", "-q", "x"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split() == ["ROLE", "INSTANCE", "STATE", "LEASE", "LOAD", "URL"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["echo", "a", "ready", "94s", "1/4"],
        ["echo", "b", "draining", "for", "ever"],
        ["planner", "x", "ready", "94s", "0/∞"],
    ]
    assert len({line.index("http") for line in lines[1:]}) == 1
    assert "\t" not in out
    assert "\x1b" not in out + err
    assert err == f"1 draining · 2 ready · hub {hub_with_workers.url}\n"
    assert set(hub_with_workers.requests[0].query.split("&")) == {"role=echo", "q=x"}
    assert "cursor=n" in hub_with_workers.requests[1].query


def test_the_table_of_agents_has_a_column_for_reasons_if_there_are_any(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = _agent("echo", "b", state="failing", reason="5 calls in a row failed, the last one: HTTP 500")
    hub.on("GET /registry/agents", Response({"agents": [_agent("echo", "a"), failing], "count": 2, "next_cursor": None}))
    assert run(["agents", "ls"]) == 0
    head, ready, other = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "REASON"
    assert ready.endswith(_agent("echo", "a")["url"])
    assert other.endswith("5 calls in a row failed, the last one: HTTP 500")


def test_json_is_one_array_with_the_members_of_the_api(
    hub_with_workers: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["agents", "ls", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [agent["name"] for agent in json.loads(out)] == ["echo:a", "echo:b", "planner:x"]
    assert err == ""


def test_roles_are_summarised(hub_with_workers: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["roles", "ls", "--json"]) == 0
    echo, other = json.loads(capsys.readouterr().out)
    assert (echo["role"], echo["workers"], echo["ready"], echo["in_flight"]) == ("echo", 2, 1, 2)
    assert other["skills"] == ["planner-skill"]
    assert run(["roles", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["echo", "2", "1", "2", "echo-skill", "does", "echo"]


def test_no_worker_is_an_empty_table_and_no_error(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("GET /registry/agents", Response({"agents": [], "count": 0, "next_cursor": None}))
    assert run(["agents", "ls"]) == 0
    assert "no live worker" in capsys.readouterr().err


def test_one_agent_is_shown_drained_and_removed_by_its_full_name(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("GET /registry/agents/echo:a", Response(_agent("echo", "a", reason="slow", labels={"team": "docs"})))
    hub.on("POST /registry/agents/echo:a/drain", Response(_agent("echo", "a", state="draining")))
    hub.on("DELETE /registry/agents/echo:a", Response({"registered": False}))
    assert run(["agents", "show", "echo:a"]) == 0
    assert re.search(r"state +ready \(slow\)\n", capsys.readouterr().out)
    assert run(["agents", "drain", "echo:a", "--reason", "upgrade"]) == 0
    assert hub.requests[-1].body == {"reason": "upgrade"}
    assert "1 in flight" in capsys.readouterr().err
    hub.on("POST /registry/agents/echo:a/undrain", Response(_agent("echo", "a")))
    assert run(["agents", "undrain", "echo:a"]) == 0
    assert "echo:a is ready · 1 in flight" in capsys.readouterr().err
    assert run(["agents", "rm", "echo:a"]) == 0
    assert hub.requests[-1].method == "DELETE"


def test_what_the_skills_of_an_agent_take_is_shown_with_a_call_to_try(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    extension = {"uri": "https://rolecall.dev/ext/schemas/v1", "params": {"skills": {"echo": {"inputSchema": order}}}}
    card = {"skills": [{"id": "echo", "name": "echo"}], "capabilities": {"extensions": [extension]}}
    hub.on("GET /registry/agents/echo:a", Response(_agent("echo", "a", card=card)))
    call = """echo --data '{"what": "what"}'"""
    assert run(["agents", "show", "echo:a"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines[-3:]] == [
        ["skill", "echo: echo"],
        ["takes", "{what: text}"],
        ["try", f"rolecall send {call}"],
    ]
    monkeypatch.delenv("ROLECALL_HUB")
    assert run(["agents", "show", "echo:a", "--hub", hub.url]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"rolecall send --hub {hub.url} {call}")


@pytest.mark.parametrize("command", ["show", "drain", "undrain", "rm"])
def test_worker_that_is_not_live_exits_with_5(hub: ScriptedHub, capsys: pytest.CaptureFixture[str], command: str) -> None:
    gone = Response({"reason": "LEASE_UNKNOWN", "detail": "No live lease under that name. Enrol again."}, 404)
    for key in ("GET {}", "POST {}/drain", "POST {}/undrain", "DELETE {}"):
        hub.on(key.format("/registry/agents/echo:z"), gone)
    live = [_agent("echo", "a"), _agent("echo", "b")]
    hub.on("GET /registry/agents", *(Response({"agents": agents, "next_cursor": None}) for agents in (live, [])))
    for hint in ("live: echo:a, echo:b", "list the live workers: rolecall agents ls"):
        assert run(["agents", command, "echo:z"]) == 5
        assert hub.requests[-1].query == "role=echo"
        assert capsys.readouterr().err == f'error: no live worker "echo:z" [LEASE_UNKNOWN]\n  {hint}\n'
    assert run(["agents", command, "echo"]) == 2


def test_a_list_that_was_not_counted_to_its_end_says_so(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    for total, shown in ((0, "0 of 0 "), (9_999, "0 of 9999; "), (10_000, "0 of 10,000+; ")):
        hub.on("GET /registry/tasks", Response({"tasks": [], "total": total, "next_cursor": None}))
        assert run(["tasks", "ls"]) == 0
        err = capsys.readouterr().err
        assert err.startswith(shown)
        assert ("--limit shows more, --all everything" in err) == (total > 0)


def test_a_list_shows_how_long_tasks_took_and_what_they_ask(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    usual = {"role": "echo", "worker": "echo:a", "events": 1, "context_id": "c", "created": "2026-01-31T12:00:00.000Z"}
    ended = {"id": "t1", "state": "completed", "updated": "2026-01-31T12:00:00.250Z", **usual}
    waits = {"id": "t2", "state": "input-required", "updated": "2026-01-31T15:30:00.000Z", "question": "Which?", **usual}
    hub.on("GET /registry/tasks", Response({"tasks": [waits, ended], "total": 2, "next_cursor": None}))
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 90))
    works = {**usual, "id": "t3", "state": "working", "updated": began, "created": began}
    hub.on("GET /registry/tasks", Response({"tasks": [works, waits, ended], "total": 3, "next_cursor": None}))
    assert run(["tasks", "ls"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^t1 .* completed +1 +250 ms +2026", out, re.MULTILINE)
    assert re.search(r"^t2 .* input-required +1 +4 h +2026", out, re.MULTILINE)
    assert re.search(r"^t3 .* working +1 +9[0-9]\.\d s ", out, re.MULTILINE)
    assert err.startswith("t2 asks: Which?\n")


TEXTS = (
    {"asked": "tell\ta story", "state": "completed"},
    {"asked": "x" * 200, "state": "failed", "reason": "WORKER_LOST", "detail": "It is gone.\nFor ever."},
    {"state": "failed", "detail": "y" * 300},
)


@pytest.mark.parametrize(
    ("columns", "head", "texts"),
    [
        (None, "TASK ROLE WORKER STATE EVENTS TOOK UPDATED ASKED WHY", (200, 300)),
        (230, "TASK ROLE WORKER STATE EVENTS TOOK UPDATED ASKED WHY", (59, 59)),
        (120, "TASK WORKER STATE TOOK UPDATED ASKED WHY", (29, 30)),
        (76, "TASK ROLE STATE TOOK UPDATED ASKED WHY", (14, 14)),
        (60, "TASK ROLE STATE TOOK ASKED WHY", (12, 12)),
        (40, "TASK ROLE STATE TOOK", ()),
    ],
)
@pytest.mark.usefixtures("ahead_of_utc")
def test_a_list_says_what_was_asked_and_why_it_failed_in_the_room_that_there_is(
    hub: ScriptedHub,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int | None,
    head: str,
    texts: Sequence[int],
) -> None:
    """`texts`: how long the last columns are at most."""
    if columns is not None:
        monkeypatch.setattr("rolecall.cli.tasks.table.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns or 60))
    usual = {"role": "echo", "worker": "echo:machine:a1b2", "events": 1, "context_id": "c"}
    usual |= {"created": "2020-01-31T23:00:00.000Z", "updated": "2020-01-31T23:00:04.000Z"}
    found = [usual | text | {"id": f"{number}" * 36} for number, text in enumerate(TEXTS)]
    hub.on("GET /registry/tasks", Response({"tasks": found, "total": 3, "next_cursor": None}))
    assert run(["tasks", "ls"]) == 0
    out, err = capsys.readouterr()
    first, *rows = out.splitlines()
    assert first.split() == head.split()
    assert all("2020-02-01 01:00:04" in row if "EVENTS" in head else "2020-02-01" in row for row in rows if "UPDATED" in head)
    assert "times are UTC+02:00" in err
    assert len({row.find("4.0 s") for row in rows}) == 1
    if texts:
        asked, why = (first.index(name) for name in ("ASKED", "WHY"))
        assert (max(len(row[asked:why].rstrip()) for row in rows), max(len(row[why:]) for row in rows)) == texts
        assert rows[0][asked:].startswith("tell a story"[: texts[0] - 1])
        assert rows[1][why:].startswith("WORKER_LOST: It is gone. For ever."[: texts[1] - 1])
        assert rows[2][asked:why].strip() == ""
    assert columns is None or max(map(len, out.splitlines())) <= columns


@pytest.mark.usefixtures("ahead_of_utc")
def test_times_are_those_of_this_machine_and_short_ones_of_today_have_no_date() -> None:
    now = time.time()
    today = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    assert output.local_time(today, short=True) == time.strftime("%H:%M:%S", time.localtime(now))
    assert output.local_time("2020-01-31T23:00:04.250Z") == "2020-02-01 01:00:04"
    assert output.local_time("2020-01-31T23:00:04.250Z", short=True) == "2020-02-01"
    assert output.local_time(f"{time.localtime(now).tm_year}-01-01T12:00:00Z", short=True) in ("01-01 14:00", "14:00:00")
    assert (output.local_time("now"), output.local_time(None)) == ("now", "None")
    assert output.local_zone("2020-01-31T23:00:04.250Z") == output.local_zone() == "UTC+02:00"


@pytest.mark.parametrize(("zone", "name"), [("UTC0", "UTC"), ("WEST3:30", "UTC-03:30")])
def test_a_zone_is_named_by_its_distance_from_utc(monkeypatch: pytest.MonkeyPatch, zone: str, name: str) -> None:
    with monkeypatch.context() as within:
        within.setenv("TZ", zone)
        time.tzset()
        assert output.local_zone() == name
    time.tzset()


def usage(tokens: int, cost: str | None = None) -> dict[str, Any]:
    amount = None if cost is None else {"amount": cost, "currency": "USD"}
    return {"model": None, "input_tokens": tokens, "output_tokens": 0, "cost": amount}


@pytest.mark.usefixtures("ahead_of_utc")
@pytest.mark.parametrize(
    ("columns", "head", "rows"),
    [
        (
            None,
            "TASK ROLE WORKER STATE EVENTS TOOK TOKENS COST UPDATED",
            (
                f"{'0' * 30}-root planner planner:a completed 1 4 h 130 0.5 USD 2026-01-31 18:00:00",
                f"{'0' * 30}-leaf planner planner:a completed 1 4 h 30 — 2026-01-31 18:00:00",
                f"{'0' * 30}-free planner — rejected 1 4 h — — 2026-01-31 18:00:00",
            ),
        ),
        (
            60,
            "TASK ROLE STATE TOOK TOKENS COST",
            (
                "000-root planner completed 4 h 130 0.5 USD",
                "000-leaf planner completed 4 h 30 —",
                "000-free planner rejected 4 h — —",
            ),
        ),
    ],
)
def test_a_list_has_the_usage_of_tasks_and_of_a_root_that_of_its_tree(
    hub: ScriptedHub,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int | None,
    head: str,
    rows: Sequence[str],
) -> None:
    """`columns`: of a terminal; None: a pipe, where nothing is cut."""
    if columns is not None:
        monkeypatch.setattr("rolecall.cli.tasks.table.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns or 60))
    usual = {"role": "planner", "worker": "planner:a", "events": 1, "context_id": "c", "state": "completed"}
    usual |= {"created": "2026-01-31T12:00:00.000Z", "updated": "2026-01-31T16:00:00.000Z"}
    root = usual | {"id": f"{'0' * 30}-root", "usage": [usage(100, "0.25")], "tree_usage": [usage(100, "0.5"), usage(30)]}
    leaf = usual | {"id": f"{'0' * 30}-leaf", "usage": [usage(30)]}
    free = usual | {"id": f"{'0' * 30}-free", "worker": None, "state": "rejected"}
    hub.on("GET /registry/tasks", Response({"tasks": [root, leaf, free], "total": 3, "next_cursor": None}))
    assert run(["tasks", "ls"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [head, *rows]
    assert run(["tasks", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [root, leaf, free]


def test_on_a_terminal_that_is_wide_enough_a_list_is_whole(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.cli.tasks.table.is_terminal", lambda stream: True)
    row = {"id": "t" * 36, "role": "echo", "worker": None, "state": "working", "updated": "now", "events": 3}
    hub.on("GET /registry/tasks", Response({"tasks": [row], "total": 1, "next_cursor": None}))
    for columns, whole, updated in ((82, True, True), (81, False, True), (38, False, True), (37, False, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["tasks", "ls"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert (row["id"] in lines[1], "UPDATED" in lines[0], "TOKENS" in lines[0]) == (whole, updated, False)
        assert max(map(len, lines)) <= columns


def test_tasks_are_listed_shown_and_canceled(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "t1", "role": "echo", "worker": None, "context_id": "c", "state": "working", "updated": "now", "events": 3}
    hub.on("GET /registry/tasks", Response({"tasks": [row], "total": 7, "next_cursor": None}))
    assert run(["tasks", "ls", "--state", "working", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split() == ["t1", "echo", "—", "working", "3", "now"]
    assert err.startswith("1 of 7; ")
    assert set(hub.requests[-1].query.split("&")) == {"limit=1", "state=working"}
    hub.result("tasks/get", task("completed", artifacts=[{"artifactId": "a", "name": "story", "parts": [{"text": "once"}]}]))
    decision = {"task": "t1", "role": "echo", "worker": "echo:b", "rule": "only suspects left", "candidates": 3, "at": "now"}
    hub.on(
        "GET /registry/tasks/t1/decision",
        Response(decision),
        Response({"reason": "TASK_NOT_FOUND", "detail": "forgotten"}, 404),
    )
    row |= {"state": "completed"}
    hub.on("GET /registry/tasks/t1/tree", Response({"tasks": [{"task": row, "parent": None}], "usage": []}))
    assert run(["tasks", "show", "t1"]) == 0
    out = capsys.readouterr().out
    assert "story:\nonce" in out
    assert re.search(r"^worker +echo:b\nbecause +3 ready; this one was less busy than another$", out, re.MULTILINE)
    assert run(["tasks", "show", "t1"]) == 0
    out = capsys.readouterr().out
    assert "story:\nonce" in out
    assert "because" not in out
    assert "TREE" not in out
    hub.result("tasks/cancel", task("canceled"))
    assert run(["tasks", "cancel", "t1"]) == 0
    hub.error("tasks/cancel", -32002, "The task has ended already.", "TASK_NOT_CANCELABLE")
    assert run(["tasks", "cancel", "t1"]) == 1


def test_a_task_is_shown_with_the_tree_that_it_belongs_to(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    def branch(name: str, role: str, parent: str | None, worker: str | None = "w:1") -> dict[str, Any]:
        times = {"created": "2026-01-01T00:00:00.000Z", "updated": "2026-01-01T00:00:04.200Z"}
        return {"task": {"id": name, "role": role, "worker": worker, "state": "completed", **times}, "parent": parent}

    branches = [
        branch("t1", "planner", None),
        branch("t2", "researcher", "t1"),
        branch("t3", "writer", "t1", worker=None),
        branch("t4", "editor", "t2"),
        branch("t5", "stray", "gone"),
        branch("t6", "editor", "t5"),
    ]
    hub.result("tasks/get", task("completed"))
    hub.on("GET /registry/tasks/t1/decision", Response({"reason": "TASK_NOT_FOUND", "detail": "forgotten"}, 404))
    hub.on("GET /registry/tasks/t1/tree", Response({"tasks": branches, "usage": []}))
    assert run(["tasks", "show", "t1"]) == 0
    lines = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    assert [line.rstrip() for line in lines] == [
        "TREE          STATE      WORKER  TOOK   TASK",
        "planner       completed  w:1     4.2 s  t1",
        "  researcher  completed  w:1     4.2 s  t2",
        "    editor    completed  w:1     4.2 s  t4",
        "  writer      completed  —       4.2 s  t3",
        "stray         completed  w:1     4.2 s  t5",
        "  editor      completed  w:1     4.2 s  t6",
    ]
    assert run(["tasks", "show", "t1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["id"], shown["tree"]) == ("t1", branches)


@pytest.mark.usefixtures("ahead_of_utc")
def test_a_task_is_shown_with_what_was_asked_when_in_the_time_of_this_machine_and_why_it_failed(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = status("failed", "It is gone.")["status"] | {"timestamp": "2020-01-31T23:00:04.250Z"}
    failed["message"]["metadata"] = {"rolecall": {"reason": "WORKER_LOST"}}
    asked = {"role": "user", "parts": [{"kind": "text", "text": "tell\na story " + "x" * 600}]}
    files = [{"kind": "file", "file": {"name": "a.zip", "bytes": ""}}]
    artifacts = [{"artifactId": "5ab1", "parts": [{"text": "once"}]}, {"artifactId": "77", "name": "pack", "parts": files}]
    hub.result("tasks/get", task(history=[asked], artifacts=artifacts) | {"status": failed})
    hub.on("GET /registry/tasks/t1/decision", Response({"reason": "TASK_NOT_FOUND", "detail": "forgotten"}, 404))
    row = {"id": "t1", "state": "failed", "created": "2020-01-31T23:00:00.250Z", "updated": "2020-01-31T23:00:04.250Z"}
    hub.on("GET /registry/tasks/t1/tree", Response({"tasks": [{"task": row, "parent": None}], "usage": []}))
    assert run(["tasks", "show", "t1"]) == 0
    out, err = capsys.readouterr()
    facts, *shown = out.split("\n\n")
    assert [line.split(maxsplit=1)[1] for line in facts.splitlines()] == [
        *("t1", "c1", "tell a story ".ljust(499, "x") + "…", "2020-02-01 01:00:00 UTC+02:00", "4.0 s"),
        *("failed", "2020-02-01 01:00:04 UTC+02:00", "WORKER_LOST", "It is gone."),
    ]
    assert [one.splitlines()[0] for one in shown if one] == ["artifact 1:", "pack:"]
    assert err == "save its files: rolecall tasks save t1 DIR\n"


def test_a_tree_with_failed_tasks_says_why(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    def branch(name: str, state: str, parent: str | None, **why: str) -> dict[str, Any]:
        times = {"created": "2026-01-01T00:00:00.000Z", "updated": "2026-01-01T00:00:04.200Z"}
        return {"task": {"id": name, "role": "r", "worker": "w:1", "state": state, **times, **why}, "parent": parent}

    branches = [
        branch("t1", "failed", None, detail="Its call to r failed: gone"),
        branch("t2", "completed", "t1"),
        branch("t3", "failed", "t1", reason="WORKER_LOST", detail="w:1 is gone.\nWhat it had not sent is lost."),
        branch("t4", "failed", "t1", detail="x" * 161),
    ]
    hub.result("tasks/get", task("failed"))
    hub.on("GET /registry/tasks/t1/decision", Response({"reason": "TASK_NOT_FOUND", "detail": "forgotten"}, 404))
    hub.on("GET /registry/tasks/t1/tree", Response({"tasks": branches, "usage": []}))
    assert run(["tasks", "show", "t1"]) == 0
    assert capsys.readouterr().out.partition("\n\n")[2].splitlines() == [
        "TREE  STATE      WORKER  TOOK   TASK  WHY",
        "r     failed     w:1     4.2 s  t1    Its call to r failed: gone",
        "  r   completed  w:1     4.2 s  t2",
        "  r   failed     w:1     4.2 s  t3    WORKER_LOST: w:1 is gone. What it had not sent is lost.",
        f"  r   failed     w:1     4.2 s  t4    {'x' * 159}…",
    ]


def test_a_question_that_came_up_a_tree_is_listed_once_where_it_came_up_to(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"role": "r", "worker": "r:a", "state": "input-required", "since": "2026-01-01T00:00:00.000Z", "question": "Which?"}
    waiting = [{"id": "t3", **row}, {"id": "t2", "child": "t3", **row}, {"id": "t1", "child": "t2", **row}, {"id": "u1", **row}]
    hub.on("GET /registry/tasks", Response({"tasks": waiting, "total": 4, "next_cursor": None}))
    assert run(["inbox"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["t1", "Which?", "u1", "Which?"]
    assert err.startswith("2 waiting")
    assert run(["inbox", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == waiting


def test_ping_reports_a_healthy_an_unhealthy_and_an_absent_hub(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on(
        "GET /health",
        Response({"status": "ok", "workers": 2, "roles": 1}),
        Response({"status": "degraded", "checks": {"store": False}}),
    )
    assert run(["ping"]) == 0
    assert capsys.readouterr().out.startswith(f"ok · {hub.url} · 2 workers, 1 role · ")
    assert run(["ping"]) == 3
    assert "store" in capsys.readouterr().err
    assert run(["--hub", "http://127.0.0.1:9", "ping"]) == 3
    assert run(["--hub", "nonsense", "ping"]) == 2
    assert run(["--hub", hub.url.removeprefix("http://"), "ping"]) == 3  # degraded
    assert "not healthy" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "ROLECALL_CA_FILE"])
def test_a_command_trusts_the_file_that_either_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    authority = new_authority(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with scripted_hub(tls=authority.certificate().server_context()) as hub:
        hub.on("GET /health", Response({"status": "ok"}))
        assert run(["ping", "--hub", hub.url]) == 3
        monkeypatch.setenv(variable, str(authority.file))
        assert run(["ping", "--hub", hub.url]) == 0


def test_options_before_the_command_count_for_it(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLECALL_HUB", "http://127.0.0.1:9")
    hub.on("GET /health", Response({"status": "ok"}))
    assert run(["--hub", hub.url, "--token", "abc", "ping"]) == 0
    assert hub.requests[-1].headers["authorization"] == "Bearer abc"
    assert run(["--hub", "http://127.0.0.1:9", "ping", "--hub", hub.url]) == 0


def test_token_can_come_from_a_file(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("ROLECALL_TOKEN_FILE", str(tmp_path / "token"))
    hub.on("GET /health", Response({"status": "ok"}))
    assert run(["ping"]) == 0
    assert hub.requests[-1].headers["authorization"] == "Bearer from-file"


def test_config_show_names_the_origin_of_each_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("rolecall.toml").write_text("drain = 7\n")
    monkeypatch.setenv("ROLECALL_PORT", "9")
    assert run(["config", "show", "--origin"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^port +9 +env ROLECALL_PORT$", out, re.MULTILINE)
    assert re.search(r"^drain +7 +rolecall\.toml:1$", out, re.MULTILINE)
    assert run(["config", "show", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(SPECS)


def test_config_validate_lists_every_problem_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "validate"]) == 0
    Path("rolecall.toml").write_text("prot = 7\nloop = 3\n")
    assert run(["config", "validate"]) == 2
    err = capsys.readouterr().err
    assert 'rolecall.toml:1: unknown key "prot". Did you mean "port"?' in err
    assert "loop: must be" in err


def test_serve_refuses_wrong_settings_before_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--port", "many"]) == 2
    assert "(flag --port)" in capsys.readouterr().err


def test_every_setting_is_a_flag_that_names_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")  # as wide as the help may be: on 80 columns the longest name is cut
    assert run(["serve", "--help"]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    for key in SPECS:
        assert f"--{key.replace('_', '-')} VALUE" in text
        assert f"[env: ROLECALL_{key.upper()}; default: " in text


def test_worker_that_cannot_be_loaded_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "run", "nowhere_to_be_found"]) == 2
    Path("broken_worker.py").write_text("\n\nraise RuntimeError('my fault')\n")
    assert run(["worker", "run", "broken_worker:worker"]) == 1
    err = capsys.readouterr().err
    assert "RuntimeError: my fault" in err
    assert "broken_worker.py:3" in err
    assert "Traceback" not in err


def test_a_worker_is_checked_without_being_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("checked_worker.py").write_text(
        "from rolecall import Worker\nempty = Worker('empty')\nworker = Worker('checked')\n"
        "@worker.on_message\ndef repeat(text: str) -> str:\n    return text\n"
    )
    assert run(["worker", "run", "checked_worker:worker", "--check"]) == 0
    assert capsys.readouterr().out == "checked\n"
    assert run(["worker", "run", "checked_worker:empty", "--check"]) == 1
    assert "empty has no handler: decorate a function with @worker.on_message" in capsys.readouterr().err


def test_bug_is_one_line_and_no_traceback(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.on("GET /registry/tasks", Response(["not", "an", "object"]))
    assert run(["tasks", "ls"]) == 1
    err = capsys.readouterr().err
    assert "[INTERNAL]" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["send"], ["agents", "ls", "--state", "asleep"], ["tasks", "ls", "--limit", "0"]]
)
def test_usage_errors_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "Error:" in capsys.readouterr().err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_support_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.paint("x", "red", _Terminal()) == "\x1b[31mx\x1b[0m"
    assert output.paint("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.paint("x", "red", _Terminal()) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert output.paint("x", "red", _Terminal()) == "x"


def test_agents_cannot_control_a_terminal() -> None:
    assert output.strip_control("a\x1b[2J\x07b\n\tc\x9b") == "a[2Jb\n\tc"


def test_help_is_fast_and_lists_the_exit_codes() -> None:
    """Compared with its library alone, on the same machine at the same time."""

    def timed(*words: str) -> tuple[float, str]:
        started = time.perf_counter()
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
        return time.perf_counter() - started, done.stdout

    runs = [(timed("-m", "rolecall.cli", "--help"), timed("-c", "import click")) for _ in range(3)]
    assert min(help[0] / bare[0] for help, bare in runs) < 5
    assert "130 interrupted" in runs[0][0][1]


def test_help_loads_no_command() -> None:
    slow = ("httpx", "pydantic", "quart", "hypercorn", "sqlite3", "hub", "worker_sdk")
    code = f"import sys, rolecall.cli; rolecall.cli.run(['--help']); print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def _reference_docs() -> Any:
    spec = spec_from_file_location("reference_docs", ROOT / "scripts" / "reference_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "cli.md", "metrics.md"])
def test_reference_pages_match_the_code(name: str) -> None:
    docs = _reference_docs()
    assert (docs.FOLDER / name).read_text(encoding="utf-8") == docs.documents()[name], "run scripts/reference_docs.py"
