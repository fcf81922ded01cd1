"""What agents on the official SDK do that this project's workers never do, behind `rolecall announce`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.conversation import check_stream, refusal, said, streamed_text, text_of
from tests.interop.driven import Client


@pytest.fixture(params=["stock", "stock-plain"])
def stock(request: pytest.FixtureRequest, role_url: Callable[[str], str]) -> str:
    """The agent that streams, then the one that does not."""
    return role_url(request.param)


def test_a_bare_message_goes_straight_back(client: Client, stock: str) -> None:
    message = client.call("send", url=stock, text="hello")
    assert (message["kind"], message["role"], said(message)) == ("message", "agent", "Hello yourself")
    (streamed,) = client.call("stream", url=stock, text="hello")["events"]
    assert (streamed["kind"], said(streamed)) == ("message", "Hello yourself")


def test_an_agent_that_never_sends_its_task_has_one_all_the_same(client: Client, stock: str) -> None:
    events = client.call("stream", url=stock, text="untold 3")["events"]
    check_stream(events, ends="completed")
    assert streamed_text(events) == "1 2 3 "
    stored = client.call("get", url=stock, task=events[0]["id"])
    assert said(stored["history"][0]) == "untold 3"


def test_a_question_that_the_agent_does_not_call_final_pauses_the_task_too(official: Client, stock: str) -> None:
    events = official.call("stream", url=stock, text="ask-openly")["events"]
    if len(events) > 1:
        check_stream(events, ends="input-required")
    assert said(events[-1]["status"]["message"]) == "Which colour?"
    task = events[0]
    done = official.call("send", url=stock, text="green", task=task["id"], context=task["contextId"])
    assert (done["status"]["state"], text_of(done)) == ("completed", "You said green")


def test_an_answer_in_the_last_status_is_kept(official: Client, stock: str) -> None:
    task = official.call("send", url=stock, text="say so")
    assert (task["status"]["state"], said(task["status"]["message"])) == ("completed", "Just so")


def test_a_revised_artifact_replaces_its_draft(official: Client, stock: str) -> None:
    task = official.call("send", url=stock, text="revise")
    assert [(one["name"], one["parts"][0]["text"]) for one in task["artifacts"]] == [("paper", "final"), ("notes", "notes")]


def test_a_whole_task_at_the_end_becomes_the_events_that_it_adds(client: Client, stock: str) -> None:
    events = client.call("stream", url=stock, text="whole")["events"]
    assert [event["kind"] for event in events].count("task") == 1
    assert streamed_text(events) == "all at once"
    stored = client.call("get", url=stock, task=events[0]["id"])
    assert (stored["status"]["state"], text_of(stored)) == ("completed", "all at once")
    assert [said(message) for message in stored["history"]] == ["whole"]


def test_a_large_artifact_comes_through_whole(client: Client, stock: str) -> None:
    events = client.call("stream", url=stock, text="big")["events"]
    assert streamed_text(events) == "ü" * 200_000


def test_a_task_that_its_agent_forgot_to_end_fails_after_the_silence(official: Client, stock: str) -> None:
    """Its executor has returned, and the SDK's server goes on to call the task unfinished."""
    if "plain" in stock:
        return  # a worker that cannot stream looks like this while it works, too
    events = official.call("stream", url=stock, text="vanish")["events"]
    assert events[-1]["status"]["state"] == "failed"
    assert events[-1]["metadata"]["rolecall"]["reason"] == "WORKER_SILENT"


@pytest.mark.parametrize("command", ["crash", "vanish"])
def test_a_task_that_its_agent_forgot_to_end_can_be_cancelled(official: Client, stock: str, command: str) -> None:
    """Its executor has returned or raised, and the SDK's server goes on to call the task unfinished."""
    task = official.call("send", url=stock, text=command, blocking=False)["id"]
    watching = official.begin("resubscribe", url=stock, task=task)
    assert official.call("cancel", url=stock, task=task)["status"]["state"] == "canceled"
    events = watching.result()["events"]
    assert events[-1]["status"]["state"] == "canceled"
    assert "secret" not in str(events)


def test_an_agent_that_cannot_cancel_says_so_to_the_caller(official: Client, stock: str) -> None:
    task = official.call("send", url=stock, text="stubborn", blocking=False)["id"]
    assert refusal(official, "cancel", url=stock, task=task).code in (-32002, -32004)
    events = official.call("resubscribe", url=stock, task=task)["events"]
    assert events[-1]["status"]["state"] == "completed"
