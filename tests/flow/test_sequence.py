"""A caller that activates the sequence extension sees the number of every event and Task, and goes on after one."""

from __future__ import annotations

from typing import Any

import pytest

from hub.server.asgi import App
from rolecall.model.a2a import EventKind, JsonObject
from rolecall.model.card import JSONRPC, SEQUENCE_EXTENSION, Interface
from rolecall.model.fold import TaskFold
from rolecall.model.ids import TaskId
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System
from tests.flow.relayed import reaches
from tests.flow.test_relay_restart import settled
from tests.helpers.scripted import chunk, status, task
from tests.protocol.transcripts import HttpRequest, app_of, exchange

ACTIVE = ("a2a-extensions", f"https://other.example/ext, {SEQUENCE_EXTENSION}")


async def answer_to(
    app: App, method: str, *headers: tuple[str, str], after: Any = None, **params: Any
) -> tuple[list[JsonObject], JsonObject | None]:
    """The results, or the error."""
    if after is not None:
        params["metadata"] = {SEQUENCE_EXTENSION: {"after": after}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    _, _, text = await exchange(app, HttpRequest("POST", "/agents/echo/", body, headers))
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    documents = [parse(line.encode()) for line in lines]
    return [found["result"] for found in documents if "result" in found], documents[-1].get("error")


def own_of(document: JsonObject) -> JsonObject:
    own: JsonObject = document["metadata"][SEQUENCE_EXTENSION]
    return own


def numbers(documents: list[JsonObject]) -> list[int]:
    return [own_of(document)["sequence"] for document in documents]


async def finished(system: System, app: App) -> str:
    """A task with five events."""
    await system.enrol("echo:a", interfaces=(Interface("http://w/", JSONRPC, "0.3"),))
    system.forwarder.plan("echo:a", task(), chunk("one ", append=False), chunk("two"), chunk("three"), status("completed"))
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    got, _ = await answer_to(app, "message/stream", ACTIVE, message=message)
    assert numbers(got) == [1, 2, 3, 4, 5]
    return str(got[0]["id"])


async def test_the_task_as_of_each_event_is_the_fold_of_those_before_it(system: System) -> None:
    app = app_of(system)
    task_id = await finished(system, app)
    events, _ = await answer_to(app, "tasks/resubscribe", ACTIVE, id=task_id, after=0)
    assert numbers(events) == [1, 2, 3, 4, 5]
    fold = TaskFold(dict(events[0]))
    for number, event in enumerate(events, 1):
        if number > 1:
            fold.add(EventKind(event["kind"]), event)
        (found,), _ = await answer_to(app, "tasks/get", ACTIVE, id=task_id, after=number)
        assert own_of(found)["sequence"] == number
        assert found.get("artifacts") == fold.document.get("artifacts")
        assert found["status"]["state"] == fold.document["status"]["state"]
        (same,), _ = await answer_to(app, "tasks/get", ACTIVE, ("last-event-id", str(number)), id=task_id)
        assert same == found


async def test_a_reader_goes_on_after_the_number_that_it_names(system: System) -> None:
    app = app_of(system)
    task_id = await finished(system, app)
    got, _ = await answer_to(app, "tasks/resubscribe", ACTIVE, id=task_id, after=3)
    assert numbers(got) == [3, 4, 5]
    plain, _ = await answer_to(app, "tasks/resubscribe", id=task_id, after=3)
    assert [document.get("metadata") for document in plain] == [None, None, None]


@pytest.mark.parametrize("method", ["tasks/get", "tasks/resubscribe"])
async def test_a_number_that_the_task_does_not_have_is_refused(system: System, method: str) -> None:
    app = app_of(system)
    task_id = await finished(system, app)
    for after, text in ((6, "event"), ("3", '"after"'), (-1, '"after"')):
        _, error = await answer_to(app, method, ACTIVE, id=task_id, after=after)
        assert error is not None and error["code"] == -32602 and text in error["message"]
    _, error = await answer_to(app, method, ACTIVE, ("last-event-id", "2"), id=task_id, after=3)
    assert error is not None and "Last-Event-ID names event 2, and the parameters name event 3" in error["message"]


async def test_who_does_not_ask_sees_nothing_and_the_worker_is_not_asked(system: System) -> None:
    app = app_of(system)
    task_id = await finished(system, app)
    send = system.forwarder.calls[-1][2].send
    assert send.extensions == ("https://other.example/ext",)
    (plain,), _ = await answer_to(app, "tasks/get", id=task_id)
    (same,), _ = await answer_to(app, "tasks/get", ("last-event-id", "2"), id=task_id)
    assert plain == same and "metadata" not in plain


async def test_a_gap_is_said_at_the_event_behind_it(system: System) -> None:
    app = app_of(system)
    await system.enrol("echo:a")
    await reaches(system, task())
    row = await system.row()
    system.forwarder.plan_fetch("echo:a", task("working"), task("completed"))
    await settled(system)
    got, _ = await answer_to(app, "tasks/resubscribe", ACTIVE, id=row.id, after=0)
    assert [own_of(event) for event in got][:3] == [{"sequence": 1}, {"sequence": 2, "gap": True}]


@pytest.mark.parametrize("inline", [False, True])
async def test_a_push_config_remembers_that_its_receiver_wants_numbers(system: System, inline: bool) -> None:
    app = app_of(system)
    await system.enrol("echo:a")
    message = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    config = {"id": "c", "url": "http://127.0.0.1/hook"}
    system.forwarder.plan("echo:a", task("completed"))
    if inline:
        configuration = {"pushNotificationConfig": config}
        (found,), _ = await answer_to(app, "message/send", ACTIVE, message=message, configuration=configuration)
    else:
        (found,), _ = await answer_to(app, "message/send", message=message)
        await answer_to(app, "tasks/pushNotificationConfig/set", ACTIVE, taskId=found["id"], pushNotificationConfig=config)
    stored = await system.engine.pushes.get(CALLER, TaskId(found["id"]), "c")
    assert stored.numbers
    await answer_to(app, "tasks/pushNotificationConfig/set", taskId=found["id"], pushNotificationConfig=config)
    assert not (await system.engine.pushes.get(CALLER, TaskId(found["id"]), "c")).numbers
