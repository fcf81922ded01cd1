"""`rolecall send` and `tasks follow`: what is printed where, resuming after a cut, and the exit code."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rolecall.cli import run
from rolecall.cli.answer import AnswerPrinter, cancel_on_interrupt, follow
from rolecall.model.card import USAGE_EXTENSION
from tests.unit.cli.scripted_hub import Response, ScriptedHub, chunk, status, task
from worker_sdk import HubClient


def _streams(hub: ScriptedHub, *documents: dict[str, object], key: str = "message/stream") -> None:
    hub.on(key, Response(frames=list(enumerate(documents, 1))))


def test_text_goes_to_stdout_and_the_verdict_to_stderr(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    _streams(
        hub, task(), status("working", "thinking"), chunk("hel", append=False), chunk("lo"), status("completed", final=True)
    )
    assert run(["send", "echo", "hi"]) == 0
    out, err = capsys.readouterr()
    assert out == "hello\n"
    assert err.startswith("✓ completed · echo:demo · ")
    sent = hub.requests[0]
    assert (sent.path, sent.body["params"]["message"]["parts"]) == ("/agents/echo/", [{"kind": "text", "text": "hi"}])


def test_every_call_has_a_message_id_of_its_own(hub: ScriptedHub) -> None:
    _streams(hub, task("completed"))
    run(["send", "echo", "a"])
    run(["send", "echo", "a"])
    ids = [request.body["params"]["message"]["messageId"] for request in hub.requests if request.body]
    assert len(set(ids)) == 2


def test_options_reach_the_hub(hub: ScriptedHub) -> None:
    _streams(hub, task("completed"))
    assert run(["send", "echo:b", "x", "--context-id", "c9", "--task-id", "t9", "--token", "s3cret"]) == 0
    sent = hub.requests[0]
    assert sent.path == "/agents/echo/"
    assert sent.body["params"]["metadata"] == {"role": "echo:b"}
    assert (sent.body["params"]["message"]["contextId"], sent.body["params"]["message"]["taskId"]) == ("c9", "t9")
    assert sent.headers["authorization"] == "Bearer s3cret"


def test_a_skill_a_wait_and_metadata_go_with_the_call(hub: ScriptedHub) -> None:
    _streams(hub, task("completed"))
    assert run(["send", "shop", "x", "--skill", "order", "--wait", "7.5", "--metadata", '{"customer": 7}']) == 0
    assert hub.requests[0].body["params"]["metadata"] == {"customer": 7, "waitSeconds": 7.5, "skill": "order"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--wait", "301"], "0<=x<=300"),
        (["--metadata", "{"], "not JSON"),
        (["--metadata", "[7]"], "it must be an object"),
        (["--task-id", "t1", "--skill", "order"], "not for an answer with --task-id"),
        (["--task-id", "t1", "--wait", "1"], "not for an answer with --task-id"),
    ],
)
def test_what_a_call_cannot_say_is_a_usage_error(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert run(["send", "shop", "x", *words]) == 2
    assert problem in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        (["--budget", "2"], {"cost": {"amount": "2", "currency": "USD"}}),
        (["--budget", "0.50eur", "--budget-tokens", "900"], {"tokens": 900, "cost": {"amount": "0.5", "currency": "EUR"}}),
        (["--budget", "1.5 CHF", "--no-stream"], {"cost": {"amount": "1.5", "currency": "CHF"}}),
        (["--budget-tokens", "1"], {"tokens": 1}),
    ],
)
def test_a_budget_goes_into_the_metadata(hub: ScriptedHub, words: list[str], budget: dict[str, object]) -> None:
    _streams(hub, task("completed"))
    hub.on("message/send", Response(body={"jsonrpc": "2.0", "id": "1", "result": task("completed")}))
    assert run(["send", "echo", "x", *words]) == 0
    assert hub.requests[0].body["params"]["metadata"] == {USAGE_EXTENSION: {"budget": budget}}


@pytest.mark.parametrize("words", [["--budget", "much"], ["--budget", "0"], ["--budget", "1.2.3"], ["--budget-tokens", "0"]])
def test_a_wrong_budget_is_a_usage_error(hub: ScriptedHub, words: list[str]) -> None:
    assert run(["send", "echo", "x", *words]) == 2
    assert hub.requests == []


def test_dash_reads_stdin(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    _streams(hub, task("completed"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert run(["send", "echo", "-"]) == 0
    assert hub.requests[0].body["params"]["message"]["parts"][0]["text"] == "from a pipe"


def test_nothing_to_send_is_a_usage_error(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "echo", "  "]) == 2
    assert hub.requests == []
    assert "empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("last", "code", "word"),
    [
        (status("failed", "it broke", final=True), 1, "it broke"),
        (status("rejected", "not today", final=True), 1, "not today"),
        (status("canceled", final=True), 1, "✗ canceled"),
        (status("input-required", final=True), 7, "--task-id t1"),
        (status("auth-required", final=True), 7, "--task-id t1"),
    ],
)
def test_the_exit_code_shows_how_the_task_ended(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], last: dict[str, object], code: int, word: str
) -> None:
    _streams(hub, task(), last)
    assert run(["send", "echo", "hi"]) == code
    assert word in capsys.readouterr().err


def test_question_of_the_agent_is_data(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    _streams(hub, task(), chunk("so far"), status("input-required", "Sure? (yes/no)", final=True))
    run(["send", "echo", "hi"])
    assert capsys.readouterr().out == "so far\nSure? (yes/no)\n"


@pytest.mark.parametrize("no_stream", [True, False])
def test_answer_that_is_one_message_or_one_task_is_printed(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], no_stream: bool
) -> None:
    artifacts = [{"artifactId": "a", "parts": [{"kind": "text", "text": "one"}]}]
    artifacts.append({"artifactId": "b", "parts": [{"kind": "text", "text": "two"}]})
    message = {"kind": "message", "role": "agent", "messageId": "m", "parts": [{"kind": "text", "text": "just this"}]}
    for document, printed in ((task("completed", artifacts=artifacts), "one\ntwo\n"), (message, "just this\n")):
        _streams(hub, document)
        hub.result("message/send", document)
        assert run(["send", "echo", "hi", *(["--no-stream"] if no_stream else [])]) == 0
        assert capsys.readouterr().out == printed


def test_json_prints_the_finished_task_and_nothing_else(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    _streams(hub, task(), chunk("hello"), status("completed", final=True))
    hub.result("tasks/get", task("completed", artifacts=[]))
    assert run(["send", "echo", "hi", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == task("completed", artifacts=[])


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("ROLE_UNKNOWN", 5),
        ("NO_LIVE_WORKER", 5),
        ("SKILL_UNKNOWN", 5),
        ("WORKER_BUSY", 5),
        ("WORKER_SILENT", 6),
        ("HUB_DRAINING", 3),
        ("WORKER_LOST", 1),
        ("BRAND_NEW", 1),
    ],
)
@pytest.mark.parametrize("no_stream", [True, False])
def test_refusal_is_one_line_with_its_reason(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], reason: str, code: int, no_stream: bool
) -> None:
    for key in ("message/stream", "message/send"):
        hub.error(key, -32000, 'No role "ecko". Did you mean echo?', reason)
    assert run(["send", "ecko", "hi", *(["--no-stream"] if no_stream else [])]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == f'error: No role "ecko". Did you mean echo? [{reason}]'
    assert "Traceback" not in err


def test_wrong_token_exits_with_4(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("message/stream", Response({"detail": "no", "reason": "UNAUTHENTICATED"}, 401))
    assert run(["send", "echo", "hi", "--token", "s3cret"]) == 4
    assert "s3cret" not in capsys.readouterr().err


def test_a_server_that_is_not_a_hub_is_reported_as_such(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("message/stream", Response("<html>hello</html>", 404))
    assert run(["send", "echo", "hi"]) == 3
    assert "[NOT_A_HUB]" in capsys.readouterr().err


def test_an_unreachable_hub_exits_with_3_and_advice_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["send", "echo", "hi", "--hub", "http://127.0.0.1:9"]) == 3
    err = capsys.readouterr().err
    assert "[HUB_UNREACHABLE]" in err
    assert "rolecall dev" in err


def test_cut_stream_goes_on_where_it_broke(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    first = [(1, task()), (2, chunk("one ", append=False)), (3, chunk("two "))]
    hub.on("message/stream", Response(frames=first, cut=True))
    so_far = task("working", artifacts=[{"artifactId": "a1", "parts": [{"kind": "text", "text": "one two "}]}])
    again = [(3, so_far), (4, chunk("three")), (5, status("completed", final=True))]
    hub.on("tasks/resubscribe", Response(frames=[(3, so_far)], cut=True), Response(frames=again))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "one two three\n"
    resumed = [request for request in hub.requests if request.key == "tasks/resubscribe"]
    assert [request.headers["last-event-id"] for request in resumed] == ["3", "3"]
    assert hub.calls().count("message/stream") == 1


def test_stream_cut_before_a_task_is_known_is_never_sent_again(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("message/stream", Response(frames=[], cut=True))
    assert run(["send", "echo", "hi"]) == 8
    assert "[STREAM_LOST]" in capsys.readouterr().err
    assert hub.calls() == ["message/stream"]


def test_a_hub_that_stays_unreachable_ends_with_8_and_advice_to_continue(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["rolecall.cli.talk.send"], "PATIENCE", 0.1)
    hub.on("message/stream", Response(frames=[(1, task()), (2, chunk("one"))], cut=True))
    hub.on("tasks/resubscribe", Response(frames=[], cut=True))
    assert run(["send", "echo", "hi"]) == 8
    assert "rolecall tasks follow t1 --after 2" in capsys.readouterr().err


def test_people_are_told_once_that_the_hub_is_waited_for_and_when_it_is_back(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Response({"reason": "HUB_DRAINING", "detail": "The hub stops."}, 503)
    rest = [(2, task("working")), (3, chunk("two")), (4, status("completed", final=True))]
    monkeypatch.setattr("rolecall.cli.answer._POLL", 0.01)
    for after, shown in ((0.0, f"waiting for the hub at {hub.url}\nthe hub is back\n"), (60.0, "")):
        monkeypatch.setattr("rolecall.cli.answer.AWAY_AFTER", after)
        hub.on("message/stream", Response(frames=[(1, task()), (2, chunk("one "))], cut=True))
        hub.on("tasks/resubscribe", away, away, Response(frames=rest))
        assert run(["send", "echo", "hi"]) == 0
        out, err = capsys.readouterr()
        assert out == "one two\n"
        assert err.replace(shown, "", 1).startswith("✓ completed")


def test_a_hub_that_drains_at_the_reconnect_is_tried_again(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("message/stream", Response(frames=[(1, task()), (2, chunk("one "))], cut=True))
    draining = {"error": {"code": -32000, "message": "drains", "data": [{"reason": "HUB_DRAINING"}]}}
    rest = [(2, task("working")), (3, chunk("two")), (4, status("completed", final=True))]
    hub.on("tasks/resubscribe", Response(frames=[(0, draining)]), Response(frames=rest))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "one two\n"


def test_answer_to_a_question_is_read_past_the_question(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    _streams(hub, task("input-required"), status("working"), chunk("booked"), status("completed", final=True))
    assert run(["send", "echo", "yes", "--task-id", "t1"]) == 0
    assert capsys.readouterr().out == "booked\n"


def test_silent_hub_counts_as_lost(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker_sdk.calling.http._SILENCE", 0.1)
    hub.on("message/stream", Response(frames=[(1, task()), (2, chunk("one "))], hold=True))
    hub.on(
        "tasks/resubscribe", Response(frames=[(2, task("working")), (3, chunk("two")), (4, status("completed", final=True))])
    )
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "one two\n"


def test_a_timeout_lets_the_task_run_and_advises_to_follow_it(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.on("message/stream", Response(frames=[(1, task())], hold=True))
    started = time.monotonic()
    assert run(["send", "echo", "hi", "--timeout", "0.3"]) == 6
    assert time.monotonic() - started < 5
    assert "rolecall tasks follow t1" in capsys.readouterr().err
    assert "tasks/cancel" not in hub.calls()


def test_follow_prints_all_from_the_start_or_only_what_is_new(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    so_far = task("working", artifacts=[{"artifactId": "a1", "parts": [{"kind": "text", "text": "one "}]}])
    _streams(hub, so_far, chunk("two"), status("completed", final=True), key="tasks/resubscribe")
    assert run(["tasks", "follow", "t1"]) == 0
    assert capsys.readouterr().out == "one two\n"
    assert run(["tasks", "follow", "t1", "--after", "1"]) == 0
    assert capsys.readouterr().out == "two\n"


def accept_interrupt() -> None:
    """Background jobs of a shell ignore SIGINT; the child must not inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_ctrl_c_cancels_a_task_of_which_nothing_has_come_yet_at_a_hub_that_restarts(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.on("message/stream", Response(frames=[], hold=True, task="t1"))
    canceled = Response({"jsonrpc": "2.0", "id": "1", "result": task("canceled")})
    hub.on("tasks/cancel", Response({"reason": "HUB_DRAINING", "detail": "The hub stops."}, 503), canceled)
    async with HubClient(hub.url) as client:
        stream, answer = client.stream("echo", "hi"), AnswerPrinter("echo")

        async def send() -> None:
            async with cancel_on_interrupt(client, answer, stream):
                await follow(client, answer, stream)

        sending = asyncio.create_task(send())
        async with asyncio.timeout(10):
            while stream.task_id is None:  # noqa: ASYNC110 - the hub is a thread
                await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    assert hub.calls()[-1] == "tasks/cancel"
    assert "canceled t1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "canceled", "shown"),
    [
        (["send", "echo", "hi"], True, "canceled t1"),
        (["inbox", "answer", "t1", "hi"], False, "the task goes on: rolecall tasks follow t1"),
    ],
)
def test_ctrl_c_cancels_what_was_sent_and_leaves_what_was_answered(
    hub: ScriptedHub, words: list[str], canceled: bool, shown: str
) -> None:
    waits = {"id": "t1", "role": "echo", "worker": "echo:a", "state": "input-required"}
    hub.on("GET /registry/tasks", Response({"tasks": [waits], "total": 1, "next_cursor": None}))
    hub.on("message/stream", Response(frames=[(1, task()), (2, chunk("one"))], hold=True))
    hub.result("tasks/cancel", task("canceled"))
    command = [sys.executable, "-m", "rolecall.cli", "--hub", hub.url, *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=accept_interrupt
    ) as sender:
        assert sender.stdout is not None
        assert sender.stdout.read(3) == "one"
        sender.send_signal(signal.SIGINT)
        out, err = sender.communicate(timeout=15)
    assert sender.returncode == 130
    assert shown in err
    assert "Traceback" not in out + err
    assert [request.body["params"] for request in hub.requests if request.key == "tasks/cancel"] == [{"id": "t1"}] * canceled


@pytest.mark.parametrize("words", ["send echo hi", "chat echo < <(yes)"])
def test_a_closed_stdout_is_not_an_error(hub: ScriptedHub, words: str) -> None:
    _streams(hub, task(), *(chunk("x" * 1000 + "\n") for _ in range(500)), status("completed", final=True))
    command = f"{sys.executable} -m rolecall.cli --hub {hub.url} {words} | head -n 1"
    argv = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x" * 1000 + "\n", "")


OLD = [{"artifactId": "a", "parts": [{"kind": "text", "text": "old text"}]}]


def resting(state: str, text: str) -> dict[str, object]:
    return task(artifacts=OLD) | {"status": status(state, text)["status"]}


@pytest.mark.parametrize("no_stream", [True, False])
def test_an_answer_to_a_question_prints_only_what_is_new(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], no_stream: bool
) -> None:
    hub.result("tasks/get", resting("input-required", "Sure?"))
    frames = [(5, task("working", artifacts=OLD)), (6, chunk("new", append=False, artifact="b")), (7, status("completed"))]
    hub.on("message/stream", Response(frames=frames))
    assert run(["send", "echo", "yes", "--task-id", "t1", *(["--no-stream"] if no_stream else [])]) == 0
    assert capsys.readouterr().out == "new\n"


def test_following_prints_the_text_so_far_or_what_comes_after_a_cursor(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.on("tasks/resubscribe", Response(frames=[(5, resting("input-required", "Sure?"))]))
    assert run(["tasks", "follow", "t1"]) == 7
    assert capsys.readouterr().out == "old text\nSure?\n"
    assert run(["tasks", "follow", "t1", "--after", "5"]) == 7
    assert capsys.readouterr().out == "Sure?\n"
    hub.on("tasks/resubscribe", Response(frames=[(5, resting("failed", "it broke"))]))
    assert run(["tasks", "follow", "t1", "--after", "5"]) == 1
    out, err = capsys.readouterr()
    assert (out, "it broke" in err) == ("", True)


# --- files, data, statuses, replacements


PACK = {"artifactId": "p", "name": "pack", "parts": [{"kind": "file", "file": {"name": "../a.zip", "bytes": "UEs="}}]}


def test_an_answer_with_files_says_how_they_are_saved_unless_they_are(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _streams(hub, task("completed", artifacts=[PACK]))
    hub.result("tasks/get", task("completed", artifacts=[PACK]))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().err.endswith("  save its files: rolecall tasks save t1 DIR\n")
    assert run(["send", "echo", "hi", "--output", f"{tmp_path}/here"]) == 0
    assert capsys.readouterr().err.endswith(f"s\nsaved {tmp_path}/here/a.zip\n")


def test_files_texts_and_data_of_a_task_are_saved_under_their_names(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    both = [{"kind": "text", "text": "on"}, {"kind": "data", "data": {"a": "é"}}, {"kind": "text", "text": "ce"}]
    elsewhere = [{"kind": "file", "file": {"uri": "https://elsewhere/x"}}]
    artifacts = [
        PACK,
        {"artifactId": "1", "parts": both},
        {"artifactId": "2", "name": "notes/story.md", "parts": both[:1]},
        {"artifactId": "3", "parts": elsewhere},
        PACK,
    ]
    hub.result("tasks/get", task("completed", artifacts=artifacts))
    assert run(["tasks", "save", "t1", f"{tmp_path}/new/folder"]) == 0
    err = capsys.readouterr().err
    names = ["a.zip", "artifact-2.txt", "artifact-2.json", "story.md", "a-2.zip"]
    saved = [f"saved {tmp_path}/new/folder/{name}" for name in names]
    assert err.splitlines() == ["not saved, because it is not at the hub: https://elsewhere/x", *saved]
    texts = [(tmp_path / "new/folder" / name).read_text() for name in names]
    assert texts == ["PK", "once", '{\n  "a": "é"\n}\n', "on", "PK"]
    assert sorted(path.name for path in (tmp_path / "new").rglob("*")) == sorted([*names, "folder"])
    (tmp_path / "file").touch()
    assert run(["tasks", "save", "t1", f"{tmp_path}/file"]) == 2
    assert "file cannot be written" in capsys.readouterr().err
    hub.result("tasks/get", task("working"))
    assert run(["tasks", "save", "t1"]) == 1
    assert "t1 has no files and no artifacts [NOTHING_TO_SAVE]" in capsys.readouterr().err


def _parts(hub: ScriptedHub) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = hub.requests[0].body["params"]["message"]["parts"]
    return parts


def test_files_and_data_go_with_the_text_or_without_one(hub: ScriptedHub, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("noted")
    (tmp_path / "raw").write_bytes(b"\xff\x00")
    _streams(hub, task("completed"))
    arguments = ["--file", f"{tmp_path}/note.txt", "--file", f"{tmp_path}/raw", "--data", '{"order": 7}']
    assert run(["send", "echo", "look", *arguments]) == 0
    text, note, raw, data = _parts(hub)
    assert text == {"kind": "text", "text": "look"}
    assert note["file"] == {"name": "note.txt", "mimeType": "text/plain", "bytes": "bm90ZWQ="}
    assert raw["file"] == {"name": "raw", "bytes": "/wA="}
    assert data == {"kind": "data", "data": {"order": 7}}
    hub.requests.clear()
    assert run(["send", "echo", *arguments[-2:]]) == 0
    assert _parts(hub) == [{"kind": "data", "data": {"order": 7}}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [(["--file", "missing"], "missing cannot be read: No such file"), (["--data", "{"], "not JSON"), ([], "nothing to send")],
)
def test_what_cannot_be_sent_is_refused_before_any_request(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert run(["send", "echo", *arguments]) == 2
    assert problem in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(("raw", "kind"), [(b"caf\xc3\xa9", "text"), (b"\xff\xd8\xff", "file")])
def test_stdin_that_is_no_text_is_sent_as_a_file(hub: ScriptedHub, raw: bytes, kind: str) -> None:
    _streams(hub, task("completed"))
    command = [sys.executable, "-m", "rolecall.cli", "send", "--hub", hub.url, "echo", "-"]
    assert subprocess.run(command, input=raw, capture_output=True, timeout=30, check=False).returncode == 0
    assert [part["kind"] for part in _parts(hub)] == [kind]


def test_an_answer_that_came_as_statuses_alone_is_printed_at_its_end(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    _streams(hub, task(), status("working", "one"), status("working", "two"), status("completed", final=True))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    _streams(hub, task(), status("working", "one"), chunk("text", append=False), status("completed", final=True))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "text\n"


def test_a_replacement_that_adds_to_an_artifact_is_printed_once(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    pieces = [chunk(text, append=False) for text in ("one", "one two", "one two", "another")]
    _streams(hub, task(), *pieces, status("completed", final=True))
    assert run(["send", "echo", "hi"]) == 0
    assert capsys.readouterr().out == "one two\nanother\n"
