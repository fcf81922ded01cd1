"""`rolecall tasks export`, `tasks rm` and `tasks ls --all`: tasks of the past, written out, erased and listed."""

from __future__ import annotations

import io
import json
import time
from typing import Any
from urllib.parse import parse_qs

import pytest

from rolecall.cli import run
from rolecall.protocol.text.timestamp import moment
from tests.unit.cli.scripted_hub import Response, ScriptedHub, task


def row(name: str, state: str = "completed") -> dict[str, Any]:
    members = {
        "worker": "echo:a",
        "context_id": "c",
        "updated": "2026-01-31T12:00:00.000Z",
        "created": "2026-01-31T11:00:00.000Z",
    }
    return {"id": name, "role": "echo", "state": state, "events": 3, **members}


def plan_pages(hub: ScriptedHub) -> None:
    """Three tasks on two pages, of which one comes twice, and two summaries."""
    first = {"tasks": [row("t3"), row("t2")], "total": 3, "next_cursor": "further"}
    hub.on("GET /registry/tasks", Response(first), Response({"tasks": [row("t2"), row("t1")], "total": 3, "next_cursor": None}))
    hub.on("GET /registry/summaries", Response({"summaries": [row("s2", "failed"), row("s1")], "next_cursor": None}))
    hub.result("tasks/get", task("completed", artifacts=[]))


def test_all_tasks_are_listed_with_the_summaries_of_deleted_ones(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    plan_pages(hub)
    assert (
        run(["tasks", "ls", "--all", "--role", "echo", "--since", "2026-01-31", "--state", "failed", "--state", "completed"])
        == 0
    )
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["TASK", "t3", "t2", "t1", "s2", "s1"]
    assert err.startswith("3 tasks, and summaries of 2 whose logs have been deleted")
    asked = [parse_qs(request.query) for request in hub.requests]
    assert [one.get("cursor") for one in asked] == [None, ["further"], None]
    for one in asked:
        assert (one["state"], one["role"], one["since"]) == (["failed,completed"], ["echo"], ["2026-01-31T00:00:00.000Z"])


@pytest.mark.parametrize(("since", "ago"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)])
def test_since_can_be_a_duration_until_now(hub: ScriptedHub, since: str, ago: float) -> None:
    plan_pages(hub)
    before = time.time()
    assert run(["tasks", "ls", "--since", since]) == 0
    asked = moment(parse_qs(hub.requests[-1].query)["since"][0])
    assert asked is not None
    assert before - 0.01 <= asked + ago <= time.time() + 0.01


def test_a_time_that_is_none_is_refused_before_any_request(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tasks", "ls", "--since", "yesterday"]) == 2
    assert "such as 30m, 12h, 7d" in capsys.readouterr().err
    assert hub.requests == []


def test_tasks_are_exported_as_json_lines_with_their_documents(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    plan_pages(hub)
    assert run(["tasks", "export"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == ["t3", "t2", "t1"]
    assert all(line["task"] == task("completed", artifacts=[]) and line["events"] == 3 for line in lines)
    assert [request.body["params"] for request in hub.requests if request.key == "tasks/get"] == [
        {"id": name} for name in ("t3", "t2", "t1")
    ]


def test_an_export_leaves_out_a_task_that_is_deleted_meanwhile(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    plan_pages(hub)
    hub.error("tasks/get", -32001, "No such task.", "TASK_NOT_FOUND")
    assert run(["tasks", "export", "--summaries"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [row("s2", "failed"), row("s1")]
    assert err.startswith("2 tasks")


def test_tasks_are_erased_by_their_ids(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("t1", "t2"):
        hub.on(f"DELETE /registry/tasks/{name}", Response({"erased": 1, "more": False}))
    assert run(["tasks", "rm", "t1", "t2"]) == 0
    assert hub.calls() == ["DELETE /registry/tasks/t1", "DELETE /registry/tasks/t2"]
    assert capsys.readouterr().err == "erased t1\nerased t2\n"


def test_all_tasks_of_a_context_are_erased_piece_by_piece_when_it_is_confirmed(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [Response({"erased": 100, "more": True}), Response({"erased": 7, "more": False})]
    hub.on("DELETE /registry/tasks", *pieces)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["tasks", "rm", "--context-id", "c"]) == 130
    assert hub.requests == []
    assert run(["tasks", "rm", "--context-id", "c", "--yes"]) == 0
    assert [request.query for request in hub.requests] == ["context_id=c"] * 2
    assert capsys.readouterr().err.endswith("erased 107 tasks of context c\n")
    hub.on("DELETE /registry/tasks", Response({"erased": 1, "more": False}))
    assert run(["tasks", "rm", "--holder", "anna", "--yes"]) == 0
    assert hub.requests[-1].query == "holder=anna"


def test_an_erasure_that_finds_nothing_says_so(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("DELETE /registry/tasks", Response({"erased": 0, "more": False}))
    hub.on("GET /registry/me", Response({"name": "me", "kind": "admin", "workspace": "alpha", "rights": []}))
    assert run(["tasks", "rm", "--holder", "ana", "--yes"]) == 1
    assert "there is no task of holder ana in workspace alpha, so none was erased" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["t1", "--context-id", "c"], ["t1", "--holder", "anna"]])
def test_what_to_erase_is_named_in_one_way(hub: ScriptedHub, arguments: list[str]) -> None:
    assert run(["tasks", "rm", *arguments]) == 2
    assert hub.requests == []
