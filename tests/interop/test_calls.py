"""Unmodified clients call unmodified agents through the hub, and each sees what A2A 0.3 promises it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from uuid import uuid4

import pytest

from tests.helpers.processes import HubProcess
from tests.interop.conversation import check_stream, refusal, said, streamed_text, text_of
from tests.interop.driven import Client, Json

RoleUrl = Callable[[str], str]


def begin_waiting(client: Client, url: str) -> str:
    """A task that works until it is cancelled, and whose caller has left."""
    events: list[Json] = client.call("stream", url=url, text="wait", take=1)["events"]
    task: str = events[0]["id"]
    return task


# --- message/send


def test_send_waits_for_the_finished_task(client: Client, agent: str) -> None:
    message_id = str(uuid4())
    task = client.call("send", url=agent, text="count 3", message_id=message_id)
    assert task["kind"] == "task"
    assert task["status"]["state"] == "completed"
    assert text_of(task) == "1 2 3 "
    first, *others = task["history"]
    assert (first["role"], first["messageId"], said(first)) == ("user", message_id, "count 3")
    assert (first["taskId"], first["contextId"]) == (task["id"], task["contextId"])
    assert [message["role"] for message in others] == ["agent"] * len(others)


def test_send_without_waiting_returns_a_task_that_goes_on(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="wait", blocking=False)
    assert task["status"]["state"] in ("submitted", "working")
    assert client.call("get", url=agent, task=task["id"])["status"]["state"] in ("submitted", "working")
    assert client.call("cancel", url=agent, task=task["id"])["status"]["state"] == "canceled"


def test_data_and_files_arrive_as_they_were_sent(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="report")
    figures, picture = task["artifacts"]
    assert figures["name"] == "figures"
    assert figures["parts"][0]["data"] == {"answer": 42, "exact": 0.5, "name": "Käthe"}
    file = picture["parts"][0]["file"]
    assert base64.b64decode(file["bytes"]) == b"\x00\x01\xff"
    assert (file["name"], file["mimeType"]) == ("picture.bin", "application/octet-stream")


def test_a_failed_task_says_why(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="fail")
    assert task["status"]["state"] == "failed"
    assert said(task["status"]["message"]) == "It broke"


def test_a_context_of_the_callers_own_is_kept_over_two_tasks(client: Client, agent: str) -> None:
    context = str(uuid4())
    first = client.call("send", url=agent, text="count 1", context=context)
    second = client.call("send", url=agent, text="count 2", context=context)
    assert first["contextId"] == second["contextId"] == context
    assert first["id"] != second["id"]


# --- message/stream


def test_a_stream_brings_every_chunk_and_ends_with_the_final_status(client: Client, agent: str) -> None:
    answer = client.call("stream", url=agent, text="count 4 0.02")
    check_stream(answer["events"], ends="completed")
    assert streamed_text(answer["events"]) == "1 2 3 4 "
    stored = client.call("get", url=agent, task=answer["events"][0]["id"])
    assert stored["status"]["state"] == "completed"
    assert text_of(stored) == "1 2 3 4 "
    assert said(stored["history"][0]) == "count 4 0.02"


@pytest.mark.parametrize("role", ["own", "stock", "stock-plain"])
def test_the_python_sdk_folds_a_stream_into_the_task_that_the_hub_has(
    python_client: Client, role_url: RoleUrl, role: str
) -> None:
    url = role_url(role)
    folded = python_client.call("stream", url=url, text="count 3 0.02")["task"]
    stored = python_client.call("get", url=url, task=folded["id"])
    assert text_of(folded) == text_of(stored) == "1 2 3 "
    assert [artifact["artifactId"] for artifact in folded["artifacts"]] == [a["artifactId"] for a in stored["artifacts"]]
    assert folded["status"] == stored["status"]
    assert folded["contextId"] == stored["contextId"]


@pytest.mark.parametrize("role", ["own", "stock"])
def test_chunks_are_streamed_one_by_one(official: Client, role_url: RoleUrl, role: str) -> None:
    events = official.call("stream", url=role_url(role), text="count 3 0.02")["events"]
    chunks = [part["text"] for event in events if event["kind"] == "artifact-update" for part in event["artifact"]["parts"]]
    assert [chunk for chunk in chunks if chunk] == ["1 ", "2 ", "3 "]
    updates = [event for event in events if event["kind"] == "artifact-update"]
    assert [bool(event.get("append")) for event in updates] == [False] + [True] * (len(updates) - 1)
    assert [bool(event.get("lastChunk")) for event in updates] == [False] * (len(updates) - 1) + [True]
    assert "counting" in [said(event["status"].get("message")) for event in events if event["kind"] == "status-update"]


# --- tasks/get


def test_history_can_be_shortened(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="count 1")
    shortened = client.call("get", url=agent, task=task["id"], history=1)
    assert len(shortened["history"]) == 1
    assert shortened["history"] == client.call("get", url=agent, task=task["id"])["history"][-1:]


# --- tasks/cancel


def test_cancel_ends_the_task_and_every_stream_of_it(client: Client, agent: str) -> None:
    task = begin_waiting(client, agent)
    watching = client.begin("resubscribe", url=agent, task=task)
    canceled = client.call("cancel", url=agent, task=task)
    assert (canceled["id"], canceled["status"]["state"]) == (task, "canceled")
    assert client.call("get", url=agent, task=task)["status"]["state"] == "canceled"
    assert watching.result()["events"][-1]["status"]["state"] == "canceled"


def test_an_ended_task_cannot_be_cancelled(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="count 1")
    assert refusal(client, "cancel", url=agent, task=task["id"]).code == -32002


# --- tasks/resubscribe


def test_who_leaves_a_stream_can_come_back_to_it(client: Client, agent: str) -> None:
    left = client.call("stream", url=agent, text="count 10 0.05", take=1)["events"]
    task = left[0]["id"]
    events = client.call("resubscribe", url=agent, task=task)["events"]
    check_stream(events, ends="completed")
    assert events[0]["id"] == task
    assert streamed_text(events) == "1 2 3 4 5 6 7 8 9 10 "


def test_two_readers_of_one_task_see_the_same_text(client: Client, agent: str) -> None:
    task = client.call("stream", url=agent, text="count 8 0.05", take=1)["events"][0]["id"]
    readers = [client.begin("resubscribe", url=agent, task=task) for _ in range(2)]
    texts = [streamed_text(reader.result()["events"]) for reader in readers]
    assert texts == ["1 2 3 4 5 6 7 8 "] * 2


def test_resubscribing_to_a_finished_task_gives_it_once(client: Client, agent: str) -> None:
    task = client.call("send", url=agent, text="count 2")
    (event,) = client.call("resubscribe", url=agent, task=task["id"])["events"]
    assert (event["kind"], event["status"]["state"], text_of(event)) == ("task", "completed", "1 2 ")


# --- input-required


def test_a_question_is_answered_in_the_same_task(client: Client, agent: str) -> None:
    asked = client.call("send", url=agent, text="ask")
    assert asked["status"]["state"] == "input-required"
    assert said(asked["status"]["message"]) == "Which colour?"
    done = client.call("send", url=agent, text="blue", task=asked["id"], context=asked["contextId"])
    assert (done["id"], done["contextId"]) == (asked["id"], asked["contextId"])
    assert done["status"]["state"] == "completed"
    assert text_of(done) == "You said blue"
    assert [said(message) for message in done["history"] if message["role"] == "user"] == ["ask", "blue"]
    assert said(done["history"][0]) == "ask"
    assert [said(message) for message in done["history"]].count("Which colour?") == 1


def test_a_question_ends_the_stream_and_its_answer_begins_another(client: Client, agent: str) -> None:
    asked = client.call("stream", url=agent, text="ask")["events"]
    if len(asked) > 1:
        check_stream(asked, ends="input-required")
    assert asked[-1]["status"]["state"] == "input-required"
    assert said(asked[-1]["status"]["message"]) == "Which colour?"
    task = asked[0]
    told = client.call("stream", url=agent, text="red", task=task["id"], context=task["contextId"])["events"]
    check_stream(told, ends="completed")
    assert told[0]["id"] == task["id"]
    assert streamed_text(told) == "You said red"


def test_a_paused_task_can_be_cancelled(client: Client, agent: str) -> None:
    asked = client.call("send", url=agent, text="ask")
    assert client.call("cancel", url=agent, task=asked["id"])["status"]["state"] == "canceled"
    assert client.call("get", url=agent, task=asked["id"])["status"]["state"] == "canceled"


# --- refusals


@pytest.mark.parametrize("op", ["get", "cancel", "resubscribe"])
def test_an_unknown_task_is_told_by_its_code(official: Client, role_url: RoleUrl, op: str) -> None:
    assert refusal(official, op, url=role_url("own"), task="no-such-task").code == -32001


def test_a_message_for_an_unknown_task_is_told_by_its_code(official: Client, role_url: RoleUrl) -> None:
    assert refusal(official, "send", url=role_url("own"), text="hi", task="no-such-task").code == -32001
    assert refusal(official, "stream", url=role_url("own"), text="hi", task="no-such-task").code == -32001


def test_a_task_cannot_be_reached_through_another_role(official: Client, role_url: RoleUrl) -> None:
    task = official.call("send", url=role_url("own"), text="count 1")["id"]
    assert refusal(official, "get", url=role_url("stock"), task=task).code == -32001


def test_a_message_to_an_ended_task_is_refused(official: Client, role_url: RoleUrl) -> None:
    url = role_url("own")
    task = official.call("send", url=url, text="count 1")["id"]
    assert refusal(official, "send", url=url, text="more", task=task).code in (-32602, -32004)


def test_an_unknown_role_has_no_card(official: Client, hub: HubProcess) -> None:
    refused = refusal(official, "send", url=f"{hub.url}/agents/nobody/", text="hi")
    assert "404" in refused.message


def test_a_role_that_nobody_serves_is_named_to_plain_callers(own_client: Client, hub: HubProcess, role_url: RoleUrl) -> None:
    role_url("own")
    refused = refusal(own_client, "send", url=f"{hub.url}/agents/owm/", text="hi")
    assert (refused.kind, refused.code) == ("RoleUnknown", -32000)
    assert "own" in refused.message


# --- the older client classes


@pytest.mark.parametrize("role", ["own", "stock"])
def test_the_client_class_of_older_programs_works_too(official: Client, role_url: RoleUrl, role: str) -> None:
    task = official.call("legacy", url=role_url(role), text="count 2")
    assert (task["status"]["state"], text_of(task)) == ("completed", "1 2 ")
