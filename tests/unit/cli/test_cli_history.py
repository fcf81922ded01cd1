"""`rolecall tasks export`, `tasks rm` and `tasks ls --all`: tasks of the past, written out, erased and listed."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self
from urllib.parse import parse_qs

import pytest

from rolecall.cli import run
from rolecall.protocol.text.timestamp import moment
from tests.helpers.pages import blocks_of
from tests.unit.cli.scripted_hub import Response, ScriptedHub, task

LISTED = blocks_of("docs/howto/history.md")["listed"]


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
    wanted = ["--role", "echo", "--since", "2026-01-31T00:00Z", "--state", "failed", "--state", "completed"]
    assert run(["tasks", "ls", "--all", *wanted]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["TASK", "t3", "t2", "t1", "s2", "s1"]
    assert err.startswith("3 tasks, and summaries of 2 whose logs have been deleted")
    asked = [parse_qs(request.query) for request in hub.requests]
    assert [one.get("cursor") for one in asked] == [None, ["further"], None]
    for one in asked:
        assert (one["state"], one["role"], one["since"]) == (["failed,completed"], ["echo"], ["2026-01-31T00:00:00.000Z"])


class _OneDay(date):
    @classmethod
    def today(cls) -> Self:
        return cls(2026, 1, 31)


def test_a_terminal_shows_the_table_of_the_page(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rolecall.cli.tasks.table.is_terminal", lambda stream: True)
    monkeypatch.setattr("rolecall.cli.output.date", _OneDay)
    monkeypatch.setenv("COLUMNS", "100")
    listed = []
    for line in LISTED.splitlines()[1:]:
        name, worker, state, took, updated, asked, *why = re.split(r"  +", line)
        ended = datetime.strptime(f"2026-{updated}", "%Y-%m-%d %H:%M").astimezone(UTC)
        number, unit = took.split()
        begun = ended - timedelta(seconds=float(number) / (1000 if unit == "ms" else 1))
        times = {"created": begun.isoformat(), "updated": ended.isoformat()}
        reason, _, detail = why[0].rpartition(": ") if why else ("", "", "")
        words = detail.replace("…", " and has to be started again")
        listed.append(
            {**row(name), **times, "worker": worker, "state": state, "asked": asked, "reason": reason, "detail": words}
        )
    hub.on("GET /registry/tasks", Response({"tasks": listed, "total": len(listed), "next_cursor": None}))
    assert run(["tasks", "ls"]) == 0
    assert capsys.readouterr().out == LISTED


def test_an_operator_lists_cancels_and_erases_tasks_of_all_holders(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    page = {"tasks": [{**row("0a0b-1", "working"), "holder": "anna"}, {**row("0a0b-2"), "holder": "bert"}], "total": 2}
    hub.on("GET /registry/tasks", Response({**page, "next_cursor": None}))
    hub.on("POST /registry/tasks/0a0b-1/cancel", Response(row("0a0b-1", "canceled")))
    hub.on("DELETE /registry/tasks/0a0b-2", Response({"erased": 1, "more": False}))
    assert run(["tasks", "ls", "--all-holders"]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["TASK", "HOLDER", "ROLE"],
        ["0a0b-1", "anna", "echo"],
        ["0a0b-2", "bert", "echo"],
    ]
    assert run(["tasks", "cancel", "0b-1", "--all-holders"]) == 0
    assert run(["tasks", "rm", "0b-2", "--all-holders"]) == 0
    assert capsys.readouterr().err == "0a0b-1 canceled\nerased 0a0b-2\n"
    lists = [request.query for request in hub.requests if request.path == "/registry/tasks"]
    assert all("all_holders=true" in query for query in [*lists, hub.requests[-1].query])
    assert run(["tasks", "ls", "--all-holders", "--all"]) == 2
    assert run(["tasks", "rm", "--all-holders", "--holder", "anna"]) == 2


@pytest.mark.parametrize(("since", "ago"), [("90s", 90), ("30m", 1800), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)])
def test_since_can_be_a_duration_until_now(hub: ScriptedHub, since: str, ago: float) -> None:
    plan_pages(hub)
    before = time.time()
    assert run(["tasks", "ls", "--since", since]) == 0
    asked = moment(parse_qs(hub.requests[-1].query)["since"][0])
    assert asked is not None
    assert before - 0.01 <= asked + ago <= time.time() + 0.01


@pytest.mark.usefixtures("ahead_of_utc")
@pytest.mark.parametrize(
    ("since", "sent"),
    [
        ("2026-01-31", "2026-01-30T22:00:00.000Z"),
        ("2026-01-31T12:00", "2026-01-31T10:00:00.000Z"),
        ("2026-01-31 12:00:05", "2026-01-31T10:00:05.000Z"),
        ("2026-01-31T12:00Z", "2026-01-31T12:00:00.000Z"),
        ("2026-01-31T12:00-03:00", "2026-01-31T15:00:00.000Z"),
    ],
)
def test_since_can_be_a_day_or_a_time_of_this_machine(hub: ScriptedHub, since: str, sent: str) -> None:
    plan_pages(hub)
    assert run(["tasks", "ls", "--since", since]) == 0
    assert parse_qs(hub.requests[-1].query)["since"] == [sent]


@pytest.mark.usefixtures("ahead_of_utc")
@pytest.mark.parametrize(("since", "days"), [("today", 0), ("yesterday", 1)])
def test_a_day_begins_at_midnight_here(hub: ScriptedHub, since: str, days: int) -> None:
    plan_pages(hub)
    assert run(["tasks", "ls", "--since", since]) == 0
    sent = moment(parse_qs(hub.requests[-1].query)["since"][0])
    assert sent is not None
    assert time.strftime("%H:%M:%S", time.localtime(sent)) == "00:00:00"
    assert 0 <= time.time() - sent - days * 86_400 < 86_401


@pytest.mark.parametrize("since", ["last week", "7", "2026-02-30", "-1d"])
def test_a_time_that_is_none_is_refused_before_any_request(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], since: str
) -> None:
    assert run(["tasks", "ls", "--since", since]) == 2
    assert "is not a duration such as 30m, 12h, 7d, a day (today, yesterday, 2026-01-31) or" in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("limit", "shown", "asked"), [(2, "t3 t2", "2"), (3, "t3 t2 t1", "3 1"), (4, "t3 t2 t1 s2", ""), (9, "t3 t2 t1 s2 s1", "")]
)
def test_a_limit_holds_over_pages_and_together_with_all(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, limit: int, shown: str, asked: str
) -> None:
    plan_pages(hub)
    assert run(["tasks", "ls", "--all", "--limit", f"{limit}"]) == 0
    out, err = capsys.readouterr()
    assert " ".join(line.split()[0] for line in out.splitlines()[1:]) == shown
    assert err.startswith(f"{min(limit, 3)} tasks, and summaries of {max(0, min(limit - 3, 2))} whose")
    plan_pages(hub)
    hub.requests.clear()
    assert run(["tasks", "ls", "--limit", f"{limit}"]) == 0
    out, err = capsys.readouterr()
    assert " ".join(line.split()[0] for line in out.splitlines()[1:]) == " ".join(shown.split()[:3])
    if asked:
        assert " ".join(parse_qs(request.query)["limit"][0] for request in hub.requests) == asked
    assert err.startswith(f"{min(limit, 3)} of 3{'' if limit > 2 else '; --limit shows more, --all everything'} · ")


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


@pytest.mark.usefixtures("ahead_of_utc")
def test_tasks_that_ended_long_ago_are_erased(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.on("DELETE /registry/tasks", Response({"erased": 1, "more": False}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(["tasks", "rm", "--older-than", "2026-01-31T12:00"]) == 0
    assert parse_qs(hub.requests[-1].query) == {"ended_by": ["2026-01-31T10:00:00.000Z"]}
    out, err = capsys.readouterr()
    assert "Erase all tasks that ended before 2026-01-31 12:00:00? [y/N]" in out + err
    assert err.endswith("erased 1 task that ended before 2026-01-31 12:00:00\n")
    before = time.time()
    assert run(["tasks", "rm", "--older-than", "3d", "--context-id", "c", "--yes"]) == 0
    sent = parse_qs(hub.requests[-1].query)
    ended_by = moment(sent.pop("ended_by")[0])
    assert ended_by is not None
    assert (sent, round(before - ended_by, -1)) == ({"context_id": ["c"]}, 3 * 86_400)
    hub.on("DELETE /registry/tasks", Response({"erased": 0, "more": False}))
    assert run(["tasks", "rm", "--older-than", "2026-01-31", "--yes"]) == 0
    assert capsys.readouterr().err.endswith("erased 0 tasks that ended before 2026-01-31 00:00:00\n")


@pytest.mark.parametrize(
    "arguments", [[], ["t1", "--context-id", "c"], ["t1", "--holder", "anna"], ["t1", "--older-than", "3d"]]
)
def test_what_to_erase_is_named_in_one_way(hub: ScriptedHub, arguments: list[str]) -> None:
    assert run(["tasks", "rm", *arguments]) == 2
    assert hub.requests == []
