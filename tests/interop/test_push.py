"""Push notifications through every SDK, whatever the worker behind the hub can do: none of these agents can push."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.content import STATES, ArtifactUpdate, Event, Push, StatusUpdate, Task, event_0_3, event_1_0
from tests.interop.conversation import check_stream, refusal, streamed_text
from tests.interop.driven import Client
from tests.interop.listener import Listener, Notice


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with Listener() as listening:
        yield listening


def events_of(client: Client, notices: list[Notice]) -> list[Event]:
    """In the version in which the client has set its receiver: 1.0 tells each event, and 0.3 the whole task after it."""
    return [event_1_0(notice.body) if client.dialect == "1.0" else event_0_3(notice.body) for notice in notices]


def done(client: Client) -> str:
    return STATES["completed"] if client.dialect == "1.0" else "completed"


def check_notices(client: Client, notices: list[Notice], *, task: str, text: str) -> None:
    events = events_of(client, notices)
    if client.dialect == "1.0":
        check_stream(events, state="completed")
        assert streamed_text(events) == text
        assert events[0].id == task
        return
    tasks = [event for event in events if isinstance(event, Task)]
    assert len(tasks) == len(events)
    assert {one.id for one in tasks} == {task}
    assert [one.text for one in tasks] == sorted((one.text for one in tasks), key=len)
    assert (tasks[-1].state, tasks[-1].text) == ("completed", text)


def test_a_receiver_set_with_the_message_gets_every_event(client: Client, agent: str, listener: Listener) -> None:
    if client.name == "own":
        return  # this project's client has streams that come back instead
    url = listener.url()
    task = client.run(agent, "count 3", push={"id": "inline", "url": url, "token": "s3cret"})
    notices = listener.wait_until_received(url, done(client))
    check_notices(client, notices, task=task.id, text="1 2 3 ")
    for notice in notices:
        assert notice.headers["x-a2a-notification-token"] == "s3cret"
        media = "application/a2a+json" if client.dialect == "1.0" else "application/json"
        assert notice.headers["content-type"] == media
        assert notice.headers["webhook-id"].startswith(f"{task.id}.inline.")
    assert client.get_push(agent, task.id, "inline") == Push(task.id, "inline", url)


def test_a_receiver_can_be_set_read_listed_and_deleted(sdk_client: Client, main_agent: str, listener: Listener) -> None:
    asked = sdk_client.run(main_agent, "ask")
    urls = {name: listener.url() for name in ("first", "second")}
    for name, url in urls.items():
        kept = sdk_client.set_push(
            main_agent, asked.id, {"id": name, "url": url, "scheme": "Bearer", "credentials": f"key of {name}"}
        )
        assert kept == Push(asked.id, name, url, "Bearer")
        assert sdk_client.get_push(main_agent, asked.id, name) == kept
    if sdk_client.has("push_list"):
        entries = sdk_client.list_push(main_agent, asked.id)
        assert {(push.id, push.url) for push in entries} == set(urls.items())
        sdk_client.delete_push(main_agent, asked.id, "second")
        assert [push.id for push in sdk_client.list_push(main_agent, asked.id)] == ["first"]
        missing = -32001 if sdk_client.dialect == "1.0" else -32602
        assert refusal(lambda: sdk_client.get_push(main_agent, asked.id, "second")).code == missing
    sdk_client.run(main_agent, "blue", task=asked.id)
    notices = listener.wait_until_received(urls["first"], done(sdk_client))
    assert {notice.headers["authorization"] for notice in notices} == {"Bearer key of first"}
    texts = [event.text if isinstance(event, Task) else _artifact_text(event) for event in events_of(sdk_client, notices)]
    assert "You said blue" in texts
    if sdk_client.has("push_list"):
        assert done(sdk_client) not in str(listener.got(urls["second"]))


def _artifact_text(event: Event) -> Any:
    return event.artifact.text if isinstance(event, ArtifactUpdate) else None


def test_a_receiver_set_after_the_end_gets_the_result_at_once(sdk_client: Client, main_agent: str, listener: Listener) -> None:
    task, url = sdk_client.run(main_agent, "count 2"), listener.url()
    sdk_client.set_push(main_agent, task.id, {"url": url})
    last = events_of(sdk_client, listener.wait_until_received(url, done(sdk_client)))[-1]
    assert isinstance(last, Task | StatusUpdate) and last.state == "completed"


def test_a_receiver_for_an_unknown_task_or_at_a_forbidden_address_is_refused(
    sdk_client: Client, main_agent: str, listener: Listener
) -> None:
    assert refusal(lambda: sdk_client.set_push(main_agent, "no-such-task", {"url": listener.url()})).code == -32001
    task = sdk_client.run(main_agent, "count 1").id
    assert refusal(lambda: sdk_client.set_push(main_agent, task, {"url": "http://192.168.7.7/hook"})).code == -32602
    assert refusal(lambda: sdk_client.get_push(main_agent, task, "none")).code in (-32001, -32602)
