"""`rolecall chat` where nobody types: what is sent, how it ends, and how an earlier conversation is shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli import run
from tests.unit.cli.scripted_hub import Response, ScriptedHub, chunk, status, task

Events = list[tuple[int, dict[str, Any]]]


def chat(monkeypatch: pytest.MonkeyPatch, *lines: str, words: tuple[str, ...] = ()) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return run(["chat", "shop", *words])


def turn(text: str) -> dict[str, Any]:
    return {"kind": "message", "role": "user", "messageId": text, "parts": [{"kind": "text", "text": text}]}


def test_what_a_call_says_goes_with_each_message_and_only_the_metadata_with_an_answer(
    hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = Response(frames=[(1, task()), (2, status("input-required", "How many?", final=True))])
    done = Response(frames=[(2, task("input-required")), (3, status("completed", final=True))])
    hub.on("message/stream", asks, done)
    options = ("--skill", "order", "--wait", "3", "--metadata", '{"customer": 7}')
    assert chat(monkeypatch, "tea", "two", words=options) == 0
    sent = [request.body["params"]["metadata"] for request in hub.requests if request.key == "message/stream"]
    assert sent == [{"customer": 7, "waitSeconds": 3, "skill": "order"}, {"customer": 7}]


@pytest.mark.parametrize(
    ("last", "code", "printed"),
    [
        (status("input-required", "Sure?", final=True), 7, '  answer it: rolecall send shop "…" --task-id t1\n'),
        (status("failed", "it broke", final=True), 1, "✗ failed: it broke\n"),
        (status("completed", final=True), 0, ""),
    ],
)
def test_a_pipe_ends_as_send_does(
    hub: ScriptedHub,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    last: dict[str, Any],
    code: int,
    printed: str,
) -> None:
    hub.on("message/stream", Response(frames=[(1, task()), (2, last)]))
    assert chat(monkeypatch, "tea") == code
    assert capsys.readouterr().err == printed


def test_the_results_of_the_last_answer_that_has_some_are_saved(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack = {"artifactId": "p", "parts": [{"kind": "file", "file": {"name": "a.zip", "bytes": "UEs="}}]}
    good = Response(frames=[(1, task("completed", artifacts=[pack]))])
    bad = Response(frames=[(1, {**task("failed"), "id": "t2"})])
    hub.on("message/stream", good, bad)
    hub.result("tasks/get", task("completed", artifacts=[pack]))
    assert chat(monkeypatch, "/save", "tea", "no", f"/save {tmp_path}/here") == 1
    assert [request.body["params"] for request in hub.requests if request.key == "tasks/get"] == [{"id": "t1"}]
    assert (tmp_path / "here/a.zip").read_bytes() == b"PK"
    _, err = capsys.readouterr()
    assert err.splitlines()[:2] == ["There is nothing to save yet.", "/save saves the files"]


# --- an earlier conversation


def test_what_takes_a_conversation_up_again_names_its_skill(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.cli.talk.lines.is_terminal", lambda stream: True)
    hub.on("message/stream", Response(frames=[(1, task("completed"))]))
    assert chat(monkeypatch, "tea", words=("--skill", "an order")) == 0
    assert capsys.readouterr().err.endswith("take it up again: rolecall chat shop --skill 'an order' --context-id c1\n")


def plan(hub: ScriptedHub, *tasks: tuple[str, list[str], list[Events]]) -> None:
    """Tasks t1, t2, … in the order in which they began: each with its state, the caller's messages and its streams. They are
    listed in the order of their last change: the first one changed last.
    """
    rows, got = [], []
    for number, (state, turns, streams) in enumerate(tasks, 1):
        at = f"2026-01-31T12:0{number}:00.000Z"
        events = streams[-1][-1][0] if streams else 0
        rows.append({"id": f"t{number}", "role": "shop", "state": state, "events": events, "created": at})
        got.append(Response({"jsonrpc": "2.0", "id": "1", "result": task(state, history=[turn(text) for text in turns])}))
    hub.on("GET /registry/tasks", Response({"tasks": [rows[0], *reversed(rows[1:])], "total": len(rows)}))
    hub.on("tasks/get", *got, got[-1])
    hub.on("tasks/resubscribe", *(Response(frames=frames) for _, _, streams in tasks for frames in streams))


def test_an_earlier_conversation_is_shown_in_the_order_in_which_it_happened(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Events = [
        (1, task()),
        (2, chunk("let me ", append=False)),
        (3, chunk("see")),
        (4, status("input-required", "How many?")),
    ]
    so_far = task(artifacts=[{"artifactId": "a1", "parts": [{"kind": "text", "text": "let me see"}]}])
    so_far["status"] = status("input-required", "How many?")["status"]
    answered: Events = [(4, so_far), (5, chunk("Two.", artifact="b", append=False)), (6, status("completed"))]
    canceled: Events = [(1, task()), (2, chunk("a long", append=False)), (3, status("canceled"))]
    works: Events = [(1, task()), (2, chunk("so far", append=False))]
    plan(
        hub,
        ("completed", ["tea", "two"], [asked, answered]),
        ("canceled", ["a story"], [canceled]),
        ("failed", ["a car"], [[(1, task("failed"))]]),
        ("submitted", ["queued"], []),
        ("working", ["slow"], [works]),
    )
    assert chat(monkeypatch, words=("--context-id", "c1")) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        *("you> tea", "let me see", "How many?", "you> two", "Two."),
        *("you> a story", "a long", "you> a car", "you> queued", "you> slow", "so far"),
    ]
    assert err.splitlines() == [
        *("✗ canceled", "✗ failed"),
        *("it is submitted: rolecall tasks follow t4", "it is working: rolecall tasks follow t5"),
    ]
    streams = [request for request in hub.requests if request.key == "tasks/resubscribe"]
    assert [(one.body["params"]["id"], one.headers["last-event-id"]) for one in streams] == [
        *(("t1", "1"), ("t1", "4"), ("t2", "1"), ("t3", "1"), ("t5", "1")),
    ]


def test_what_an_earlier_conversation_asked_last_can_be_answered(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(hub, ("input-required", ["tea"], [[(1, task()), (2, status("input-required", "How many?"))]]))
    hub.on("message/stream", Response(frames=[(2, task("input-required")), (3, status("completed", "Two.", final=True))]))
    assert chat(monkeypatch, "two", words=("--context-id", "c1")) == 0
    assert capsys.readouterr().out == "you> tea\nHow many?\nTwo.\n"
    sent = next(request for request in hub.requests if request.key == "message/stream")
    assert sent.body["params"]["message"]["taskId"] == "t1"
