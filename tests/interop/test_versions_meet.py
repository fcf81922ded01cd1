"""One task and clients of both versions: whoever began it, all see the same, and each can do what its version lets it do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.processes import HubProcess, wait_for
from tests.interop.conftest import SDK_CLIENTS, ClientNamed, RoleUrl
from tests.interop.content import Event, Part, StatusUpdate
from tests.interop.conversation import refusal, resting, streamed_text, user_texts
from tests.interop.driven import Client

ENDS = {"count 2": "completed", "report": "completed", "ask": "input-required", "fail": "failed", "reject": "rejected"}


@pytest.fixture(params=["python-0.3", "javascript-1.x-rest"])
def first_client(request: pytest.FixtureRequest, client_named: ClientNamed) -> Client:
    return client_named(request.param)


@pytest.fixture
def everybody(client_named: ClientNamed) -> list[Client]:
    return [client_named(name) for name in SDK_CLIENTS]


def without_final(events: list[Event]) -> list[Event]:
    """1.0 has no such word."""
    return [replace(event, final=None) if isinstance(event, StatusUpdate) else event for event in events]


@pytest.mark.parametrize("words", ENDS)
def test_a_task_looks_the_same_to_everybody(first_client: Client, everybody: list[Client], main_agent: str, words: str) -> None:
    task = first_client.run(main_agent, words)
    assert task.state == ENDS[words]
    for client in everybody:
        assert client.get(main_agent, task.id) == task, client.name


def test_a_stream_brings_the_same_events_to_everybody(
    first_client: Client, everybody: list[Client], main_agent: str, tmp_path: Path
) -> None:
    task = first_client.run(main_agent, f"count 5 {tmp_path}/go", blocking=False).id
    wait_for(lambda: first_client.get(main_agent, task).text == "1 ")
    readers = [client.watch(main_agent, task) for client in everybody]
    (tmp_path / "go").touch()
    first, *others = [reader.result(10).events for reader in readers]
    assert streamed_text(first) == "1 2 3 4 5 "
    for events in others:
        assert without_final(events) == without_final(first)


def test_what_one_version_began_the_other_cancels(first_client: Client, everybody: list[Client], main_agent: str) -> None:
    task = first_client.run(main_agent, "wait", blocking=False).id
    readers = [client.watch(main_agent, task) for client in everybody]
    (other,) = [
        client for client in everybody if client.name == ("javascript-0.3" if first_client.dialect == "1.0" else "python-1.x")
    ]
    assert other.cancel(main_agent, task).state == "canceled"
    assert [resting(reader.result(10).events).state for reader in readers] == ["canceled"] * len(readers)


def test_what_was_asked_in_one_version_is_answered_in_the_other(
    first_client: Client, everybody: list[Client], main_agent: str
) -> None:
    for client in everybody:
        asked = first_client.run(main_agent, "ask")
        done = client.run(main_agent, "blue", task=asked.id, context=asked.context)
        assert (done.id, done.context, done.text) == (asked.id, asked.context, "You said blue")
        assert user_texts(first_client.get(main_agent, asked.id)) == ["ask", "blue"]


def test_the_media_type_of_a_text_reaches_versions_that_have_it(client_named: ClientNamed, role_url: RoleUrl) -> None:
    """This project's workers are told in 0.3, which has none."""
    for name in SDK_CLIENTS:
        (artifact,) = client_named(name).run(role_url("own"), "title").artifacts
        (part,) = artifact.parts
        if "1.x" in name:
            assert part == Part("text", "# Title", media_type="text/markdown")
        else:
            assert part == Part("text", "# Title", metadata={"rolecall": {"mediaType": "text/markdown"}})


def test_at_the_hubs_own_address_a_message_names_its_role(sdk_client: Client, hub: HubProcess, role_url: RoleUrl) -> None:
    role_url("own")
    task = sdk_client.run(f"{hub.url}/", "count 2", metadata={"role": "own"})
    assert (task.state, task.text) == ("completed", "1 2 ")
    assert sdk_client.get(f"{hub.url}/", task.id) == task
    refused = refusal(lambda: sdk_client.send(f"{hub.url}/", "hi", metadata={"role": "owm"}))
    if sdk_client.name != "python-1.x-rest":  # of REST errors it shows only those that A2A has
        assert 'No role "owm"' in refused.message and "own" in refused.message
