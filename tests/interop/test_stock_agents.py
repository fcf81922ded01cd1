"""What agents on the official SDKs do that this project's workers never do, behind `rolecall announce`."""

from __future__ import annotations

import pytest

from tests.interop.conftest import SDK_CLIENTS, ClientNamed, RoleUrl
from tests.interop.content import Part, Task
from tests.interop.conversation import bare_message, check_stream, refusal, resting, streamed_text
from tests.interop.driven import Client, in_thread

SDK_AGENTS = ("on-0.3", "on-0.3-plain", "on-1.x", "on-1.x-rest", "on-1.x-plain")


@pytest.fixture(params=SDK_AGENTS)
def sdk_agent(request: pytest.FixtureRequest, role_url: RoleUrl) -> str:
    return role_url(request.param)


@pytest.fixture(params=["on-0.3", "on-0.3-plain"])
def old_agent(request: pytest.FixtureRequest, role_url: RoleUrl) -> str:
    """What only the older SDK lets its agents do; with streaming, and without."""
    return role_url(request.param)


@pytest.fixture(params=["javascript-0.3", "python-1.x-rest"])
def caller(request: pytest.FixtureRequest, client_named: ClientNamed) -> Client:
    """One of each version: what these tests are about happens between the hub and its worker."""
    return client_named(request.param)


@pytest.mark.parametrize("name", [*SDK_CLIENTS, "own"])
def test_a_bare_message_goes_straight_back(client_named: ClientNamed, name: str, sdk_agent: str) -> None:
    client = client_named(name)
    message = bare_message(client.send(sdk_agent, "hello"))
    assert (message.role, message.text) == ("agent", "Hello yourself")
    (streamed,) = client.stream(sdk_agent, "hello").events
    assert bare_message(streamed).text == "Hello yourself"


def test_what_only_1_0_can_say_survives_an_agent_of_0_3(client_named: ClientNamed, role_url: RoleUrl) -> None:
    """Data that is no object, and names and media types of parts that are no files."""
    sent = (
        Part("text", "echo"),
        Part("text", "# Title", "title.md", "text/markdown"),
        Part("data", [1, "two", None, {"three": []}]),
        Part("data", 0.25, media_type="application/json"),
        Part("data", "just text", metadata={"kind": "data", "count": 3}),
        Part("text", "plain", metadata={"rolecall": "the sender's own"}),
    )
    for name in ("python-1.x", "python-1.x-rest", "javascript-1.x", "javascript-1.x-rest"):
        for role in SDK_AGENTS:
            task = client_named(name).run(role_url(role), sent)
            (echo,) = task.artifacts
            assert echo.parts == sent, (name, role)
            assert task.history[0].parts == sent, (name, role)


def test_what_has_no_home_in_0_3_is_wrapped_as_its_sdk_does_it(client_named: ClientNamed, role_url: RoleUrl) -> None:
    url = role_url("on-1.x")
    task = client_named("python-1.x").run(url, (Part("text", "echo"), Part("data", [1, "two"])))
    seen = client_named("javascript-0.3").get(url, task.id)
    assert seen.artifacts[0].parts[1] == Part("data", {"value": [1, "two"]}, metadata={"data_part_compat": True})


def test_an_agent_that_wants_to_know_who_calls_pauses_its_task(caller: Client, sdk_agent: str) -> None:
    asked = caller.run(sdk_agent, "sign-in")
    assert (asked.state, asked.status_text) == ("auth-required", "Who are you?")
    last = resting(caller.stream(sdk_agent, "sign-in").events)
    assert (last.state, last.status_text) == ("auth-required", "Who are you?")
    done = caller.run(sdk_agent, "me", task=asked.id, context=asked.context)
    assert (done.state, done.text) == ("completed", "You said me")


def test_a_task_that_a_message_refers_to_has_for_its_agent_the_agents_own_name(caller: Client, sdk_agent: str) -> None:
    first = caller.run(sdk_agent, "whoami")
    assert first.text != first.id
    assert caller.run(sdk_agent, "references", references=[first.id]).text == first.text


def test_an_agent_that_never_sends_its_task_has_one_all_the_same(caller: Client, old_agent: str) -> None:
    events = caller.stream(old_agent, "untold 3").events
    check_stream(events, state="completed")
    assert streamed_text(events) == "1 2 3 "
    opening = events[0]
    assert isinstance(opening, Task)
    assert caller.get(old_agent, opening.id).history[0].text == "untold 3"


def test_a_question_that_the_agent_does_not_call_final_pauses_the_task_too(caller: Client, old_agent: str) -> None:
    asked = caller.stream(old_agent, "ask-openly")
    if len(asked.events) > 1:
        check_stream(asked.events, state="input-required")
    assert resting(asked.events).status_text == "Which colour?"
    done = caller.run(old_agent, "green", task=asked.opening.id, context=asked.opening.context)
    assert (done.state, done.text) == ("completed", "You said green")


def test_an_answer_in_the_last_status_is_kept(caller: Client, sdk_agent: str) -> None:
    task = caller.run(sdk_agent, "say so")
    assert (task.state, task.status_text) == ("completed", "Just so")


def test_a_revised_artifact_replaces_its_draft(caller: Client, sdk_agent: str) -> None:
    task = caller.run(sdk_agent, "revise")
    assert [(artifact.name, artifact.text) for artifact in task.artifacts] == [("paper", "final"), ("notes", "notes")]


def test_a_whole_task_at_the_end_becomes_the_events_that_it_adds(caller: Client, old_agent: str) -> None:
    stream = caller.stream(old_agent, "whole")
    assert [event for event in stream.events if isinstance(event, Task)] == [stream.opening]
    assert streamed_text(stream.events) == "all at once"
    stored = caller.get(old_agent, stream.opening.id)
    assert (stored.state, stored.text) == ("completed", "all at once")
    assert [message.text for message in stored.history] == ["whole"]


def test_a_large_artifact_comes_through_whole(caller: Client, sdk_agent: str) -> None:
    assert streamed_text(caller.stream(sdk_agent, "big").events) == "ü" * 200_000


@pytest.mark.parametrize("role", ["on-0.3", "on-1.x-rest"])
def test_a_task_that_its_agent_forgot_to_end_fails_after_the_silence(
    client_named: ClientNamed, role_url: RoleUrl, role: str
) -> None:
    """Its executor has returned, and the SDK's server goes on to call the task unfinished. One that cannot stream looks like
    this while it works, too.
    """
    url = role_url(role)
    watcher = [
        in_thread(lambda name=name: client_named(name).stream(url, "vanish"))  # type: ignore[misc]
        for name in ("javascript-0.3", "python-1.x")
    ]
    for stream in watcher:
        last = resting(stream.result(20).events)
        assert last.state == "failed"
        assert last.metadata is not None and last.metadata["rolecall"]["reason"] == "WORKER_SILENT"


def test_a_task_that_its_agent_forgot_to_end_can_be_cancelled(caller: Client, sdk_agent: str) -> None:
    """Its executor has returned, and the SDK's server goes on to call the task unfinished."""
    task = caller.run(sdk_agent, "vanish", blocking=False).id
    watcher = caller.watch(sdk_agent, task)
    assert caller.cancel(sdk_agent, task).state == "canceled"
    assert resting(watcher.result(10).events).state == "canceled"


def test_a_crash_of_an_older_agent_looks_as_if_it_had_forgotten_the_task(caller: Client, old_agent: str) -> None:
    task = caller.run(old_agent, "crash", blocking=False).id
    watcher = caller.watch(old_agent, task)
    assert caller.cancel(old_agent, task).state == "canceled"
    events = watcher.result(10).events
    assert resting(events).state == "canceled"
    assert "secret" not in str(events)


@pytest.mark.parametrize("role", ["on-1.x", "on-1.x-rest", "on-1.x-plain"])
def test_a_crash_of_a_newer_agent_fails_its_task_and_its_caller_learns_no_more(
    caller: Client, role_url: RoleUrl, role: str
) -> None:
    url = role_url(role)
    task = caller.run(url, "crash")
    assert task.state == "failed"
    assert "secret" not in str(task)
    events = caller.stream(url, "crash").events
    assert resting(events).state == "failed"
    assert "secret" not in str(events)


def test_an_agent_that_cannot_cancel_says_so_to_the_caller(caller: Client, old_agent: str) -> None:
    task = caller.run(old_agent, "stubborn", blocking=False).id
    assert refusal(lambda: caller.cancel(old_agent, task)).code in (-32002, -32004)
    assert resting(caller.subscribe(old_agent, task).events).state == "completed"
