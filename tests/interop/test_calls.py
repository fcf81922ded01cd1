"""Unmodified clients of either version call unmodified agents of either version, and each sees what its own promises it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.usage import Usage, read_reports
from tests.helpers.processes import HubProcess
from tests.interop.conftest import AGENTS, ClientNamed, RoleUrl
from tests.interop.content import ArtifactUpdate, Part, StatusUpdate
from tests.interop.conversation import check_stream, refusal, resting, streamed_text, user_texts
from tests.interop.driven import Client

UNFINISHED = ("submitted", "working")


# --- a message, and its answer


def test_send_waits_for_the_finished_task(client: Client, agent: str) -> None:
    message_id = str(uuid4())
    task = client.run(agent, "count 3", message_id=message_id)
    assert (task.state, task.text) == ("completed", "1 2 3 ")
    first, *others = task.history
    assert (first.role, first.id, first.text) == ("user", message_id, "count 3")
    assert (first.task, first.context) == (task.id, task.context)
    assert [message.role for message in others] == ["agent"] * len(others)


def test_send_without_waiting_returns_a_task_that_goes_on(client: Client, agent: str) -> None:
    task = client.run(agent, "wait", blocking=False)
    assert task.state in UNFINISHED
    seen = client.get(agent, task.id)
    assert (seen.id, seen.context) == (task.id, task.context)
    assert seen.state in UNFINISHED
    assert client.cancel(agent, task.id).state == "canceled"


def test_data_and_files_arrive_as_they_were_sent(client: Client, agent: str) -> None:
    figures, file = client.run(agent, "report").artifacts
    assert figures.name == "figures"
    assert [(part.kind, part.value) for part in figures.parts] == [("data", {"answer": 42, "exact": 0.5, "name": "Käthe"})]
    assert file.parts == (Part("raw", b"\x00\x01\xff", "picture.bin", "application/octet-stream"),)


def test_parts_of_every_kind_come_back_as_they_went(client: Client, agent: str) -> None:
    sent = (
        Part("text", "echo"),
        Part("text", "Grüße, \u2028 and \N{PILE OF POO}"),
        Part("raw", bytes(range(256)), "all.bin", "application/octet-stream"),
        Part("url", "https://example.com/paper.pdf", "paper.pdf", "application/pdf"),
        Part("data", {"kind": "text", "deep": [{"yes": True, "nothing": None}, [1, 2.5, "drei"]], "": {}}),
    )
    task = client.run(agent, sent)
    assert tuple(part for artifact in task.artifacts for part in artifact.parts) == sent
    assert task.history[0].parts == sent


def test_a_failed_task_has_its_reason(client: Client, agent: str) -> None:
    task = client.run(agent, "fail")
    assert (task.state, task.status_text) == ("failed", "It broke")


def test_an_agent_can_reject_a_task(client: Client, agent: str) -> None:
    task = client.run(agent, "reject")
    assert (task.state, task.status_text) == ("rejected", "Not mine")
    assert client.get(agent, task.id).state == "rejected"


def test_a_context_of_the_callers_own_is_kept_over_two_tasks(client: Client, agent: str) -> None:
    context = str(uuid4())
    first = client.run(agent, "count 1", context=context)
    second = client.run(agent, "count 2", context=context)
    assert first.context == second.context == context
    assert first.id != second.id


# --- a message, and the stream of its answer


def test_a_stream_brings_every_chunk_and_ends_with_the_final_status(client: Client, agent: str) -> None:
    events = client.stream(agent, "count 4 0.02").events
    check_stream(events, state="completed")
    assert streamed_text(events) == "1 2 3 4 "
    opening = events[0]
    assert opening.id
    stored = client.get(agent, opening.id)
    assert (stored.state, stored.text) == ("completed", "1 2 3 4 ")
    assert stored.history[0].text == "count 4 0.02"


@pytest.mark.parametrize("role", AGENTS)
def test_the_python_sdk_of_0_3_folds_a_stream_into_the_task_that_the_hub_has(
    client_named: ClientNamed, role_url: RoleUrl, role: str
) -> None:
    client, url = client_named("python-0.3"), role_url(role)
    folded = client.stream(url, "count 3 0.02").task
    assert folded is not None
    stored = client.get(url, folded.id)
    assert folded.text == stored.text == "1 2 3 "
    assert [artifact.id for artifact in folded.artifacts] == [artifact.id for artifact in stored.artifacts]
    assert (folded.state, folded.message, folded.context) == (stored.state, stored.message, stored.context)


def test_chunks_are_streamed_one_by_one(sdk_client: Client, main_agent: str) -> None:
    events = sdk_client.stream(main_agent, "count 3 0.02").events
    updates = [event for event in events if isinstance(event, ArtifactUpdate)]
    assert [chunk for update in updates if (chunk := update.artifact.text)] == ["1 ", "2 ", "3 "]
    assert [update.append for update in updates] == [False] + [True] * (len(updates) - 1)
    assert [update.last for update in updates] == [False] * (len(updates) - 1) + [True]
    assert len({update.artifact.id for update in updates}) == 1
    assert "counting" in [event.status_text for event in events if isinstance(event, StatusUpdate)]


def test_a_report_of_usage_disturbs_no_client_and_the_task_has_it(client: Client, agent: str) -> None:
    """It comes as a status without a message, from agents of any SDK."""
    events = client.stream(agent, "use").events
    check_stream(events, state="completed")
    assert streamed_text(events) == "done"
    task = client.get(agent, events[0].id)
    assert (task.state, task.text) == ("completed", "done")
    reports = read_reports((task.metadata or {})[USAGE_EXTENSION])
    assert (reports.usage, reports.malformed) == ((Usage("small", 1200, 80, 500_000_000, "USD"),), 0)


# --- looking again


def test_history_can_be_shortened(client: Client, agent: str) -> None:
    task = client.run(agent, "count 1")
    short = client.get(agent, task.id, history=1)
    assert short.history == client.get(agent, task.id).history[-1:]
    assert (len(short.history), short.text) == (1, "1 ")


def test_the_answer_to_a_message_has_as_much_history_as_was_asked_for(sdk_client: Client, main_agent: str) -> None:
    task = sdk_client.run(main_agent, "ask")
    done = sdk_client.run(main_agent, "blue", task=task.id, history=1)
    assert (done.text, len(done.history)) == ("You said blue", 1)
    assert done.history == sdk_client.get(main_agent, task.id).history[-1:]


def test_a_history_of_none_is_none(sdk_client: Client, main_agent: str) -> None:
    task = sdk_client.run(main_agent, "count 1")
    seen = sdk_client.get(main_agent, task.id, history=0)
    assert (seen.state, seen.text, seen.history) == ("completed", "1 ", ())


def test_tasks_are_listed_with_what_was_asked_for(sdk_client: Client, main_agent: str) -> None:
    if sdk_client.dialect != "1.0":
        return  # no such method
    context = str(uuid4())
    tasks = [sdk_client.run(main_agent, f"count {n}", context=context) for n in (1, 2)]
    rejected = sdk_client.run(main_agent, "reject", context=context)
    page = sdk_client.tasks(main_agent, contextId=context)
    assert [task.id for task in page.tasks] == [rejected.id, tasks[1].id, tasks[0].id]
    assert (page.total, page.next, [task.artifacts for task in page.tasks]) == (3, "", [(), (), ()])
    full = sdk_client.tasks(
        main_agent, contextId=context, includeArtifacts=True, status="TASK_STATE_COMPLETED", historyLength=0
    )
    assert [(task.text, task.history) for task in full.tasks] == [("1 2 ", ()), ("1 ", ())]
    first = sdk_client.tasks(main_agent, contextId=context, pageSize=2)
    assert ([task.id for task in first.tasks], first.size, first.total) == ([rejected.id, tasks[1].id], 2, 3)
    rest = sdk_client.tasks(main_agent, contextId=context, pageSize=2, pageToken=first.next)
    assert ([task.id for task in rest.tasks], rest.next) == ([tasks[0].id], "")


# --- cancelling


def test_cancel_ends_the_task_and_every_stream_of_it(client: Client, agent: str) -> None:
    task = client.stream(agent, "wait", take=1).opening.id
    watcher = client.watch(agent, task)
    canceled = client.cancel(agent, task)
    assert (canceled.id, canceled.state) == (task, "canceled")
    assert client.get(agent, task).state == "canceled"
    assert resting(watcher.result(10).events).state == "canceled"


def test_an_ended_task_cannot_be_cancelled(client: Client, agent: str) -> None:
    task = client.run(agent, "count 1")
    assert refusal(lambda: client.cancel(agent, task.id)).code == -32002


# --- coming back


def test_a_client_that_disconnects_from_a_stream_can_resume_it(client: Client, agent: str, tmp_path: Path) -> None:
    task = client.stream(agent, f"count 8 {tmp_path}/go", take=1).opening
    watcher = client.watch(agent, task.id)
    (tmp_path / "go").touch()
    stream = watcher.result(10)
    check_stream(stream.events, state="completed")
    assert (stream.opening.id, stream.opening.context) == (task.id, task.context)
    assert streamed_text(stream.events) == "1 2 3 4 5 6 7 8 "


def test_two_readers_of_one_task_see_the_same_text(sdk_client: Client, main_agent: str, tmp_path: Path) -> None:
    task = sdk_client.run(main_agent, f"count 6 {tmp_path}/go", blocking=False).id
    readers = [sdk_client.watch(main_agent, task) for _ in range(2)]
    (tmp_path / "go").touch()
    assert [streamed_text(reader.result(10).events) for reader in readers] == ["1 2 3 4 5 6 "] * 2


def test_subscribing_to_a_finished_task_gives_it_once_in_0_3_and_is_refused_in_1_0(client: Client, agent: str) -> None:
    task = client.run(agent, "count 2")
    if client.dialect == "1.0":
        assert refusal(lambda: client.subscribe(agent, task.id)).code == -32004
        return
    stream = client.subscribe(agent, task.id)
    assert len(stream.events) == 1
    assert (stream.opening.id, stream.opening.state, stream.opening.text) == (task.id, "completed", "1 2 ")


# --- questions


def test_a_question_is_answered_in_the_same_task(client: Client, agent: str) -> None:
    asked = client.run(agent, "ask")
    assert (asked.state, asked.status_text) == ("input-required", "Which colour?")
    done = client.run(agent, "blue", task=asked.id, context=asked.context)
    assert (done.id, done.context) == (asked.id, asked.context)
    assert (done.state, done.text) == ("completed", "You said blue")
    assert user_texts(done) == ["ask", "blue"]
    assert done.history[0].text == "ask"
    assert [message.text for message in done.history].count("Which colour?") == 1


def test_a_question_ends_the_stream_and_its_answer_begins_another(client: Client, agent: str) -> None:
    asked = client.stream(agent, "ask")
    if len(asked.events) > 1:
        check_stream(asked.events, state="input-required")
    last = resting(asked.events)
    assert (last.state, last.status_text) == ("input-required", "Which colour?")
    answered = client.stream(agent, "red", task=asked.opening.id)
    check_stream(answered.events, state="completed")
    assert (answered.opening.id, answered.opening.context) == (asked.opening.id, asked.opening.context)
    assert streamed_text(answered.events) == "You said red"


def test_a_context_alone_answers_its_question_in_0_3_and_begins_a_task_in_1_0(sdk_client: Client, main_agent: str) -> None:
    asked = sdk_client.run(main_agent, "ask", context=str(uuid4()))
    answered = sdk_client.run(main_agent, "count 1", context=asked.context)
    assert answered.context == asked.context
    if sdk_client.dialect == "1.0":
        assert answered.id != asked.id and answered.text == "1 "
        assert sdk_client.get(main_agent, asked.id).state == "input-required"
    else:
        assert answered.id == asked.id and answered.text == "You said count 1"


def test_a_paused_task_can_be_cancelled(client: Client, agent: str) -> None:
    asked = client.run(agent, "ask")
    assert client.cancel(agent, asked.id).state == "canceled"
    assert client.get(agent, asked.id).state == "canceled"


# --- refusals


def test_an_unknown_task_has_its_code(sdk_client: Client, role_url: RoleUrl) -> None:
    url = role_url("own")
    assert refusal(lambda: sdk_client.get(url, "no-such-task")).code == -32001
    assert refusal(lambda: sdk_client.cancel(url, "no-such-task")).code == -32001
    assert refusal(lambda: sdk_client.subscribe(url, "no-such-task")).code == -32001
    assert refusal(lambda: sdk_client.send(url, "hi", task="no-such-task")).code == -32001
    assert refusal(lambda: sdk_client.stream(url, "hi", task="no-such-task")).code == -32001


def test_a_task_cannot_be_reached_through_another_role(sdk_client: Client, role_url: RoleUrl) -> None:
    task = sdk_client.run(role_url("own"), "count 1").id
    assert refusal(lambda: sdk_client.get(role_url("on-0.3"), task)).code == -32001


def test_a_message_to_an_ended_task_is_refused(sdk_client: Client, main_agent: str) -> None:
    task = sdk_client.run(main_agent, "count 1").id
    expected = -32004 if sdk_client.dialect == "1.0" else -32602
    assert refusal(lambda: sdk_client.send(main_agent, "more", task=task)).code == expected
    assert refusal(lambda: sdk_client.stream(main_agent, "more", task=task)).code == expected


def test_a_message_with_another_context_than_its_tasks_is_refused(sdk_client: Client, main_agent: str) -> None:
    asked = sdk_client.run(main_agent, "ask")
    assert refusal(lambda: sdk_client.send(main_agent, "blue", task=asked.id, context=str(uuid4()))).code == -32602
    assert sdk_client.run(main_agent, "blue", task=asked.id).text == "You said blue"


def test_there_is_no_extended_card_and_each_version_has_its_code(sdk_client: Client, main_agent: str) -> None:
    expected = -32004 if sdk_client.dialect == "1.0" else -32007
    assert refusal(lambda: sdk_client.extended_card(main_agent)).code == expected


def test_an_unknown_role_has_no_card(sdk_client: Client, hub: HubProcess) -> None:
    assert "404" in refusal(lambda: sdk_client.send(f"{hub.url}/agents/nobody/", "hi")).message


def test_a_role_that_nobody_serves_is_named_to_plain_callers(
    client_named: ClientNamed, hub: HubProcess, role_url: RoleUrl
) -> None:
    role_url("own")
    refused = refusal(lambda: client_named("own").send(f"{hub.url}/agents/owm/", "hi"))
    assert (refused.kind, refused.code) == ("RoleUnknown", -32000)
    assert "own" in refused.message


# --- the older client classes


@pytest.mark.parametrize("name", ["python-0.3", "javascript-0.3"])
def test_the_client_class_of_older_programs_works_too(client_named: ClientNamed, name: str, main_agent: str) -> None:
    task = client_named(name).legacy(main_agent, "count 2")
    assert (task.state, task.text) == ("completed", "1 2 ")
