"""Webhooks under the oldest names: states and artifacts have separate forms."""

from __future__ import annotations

import json
import time

from tests.seeds.door import RawClient, message_v01, texts, wait
from tests.seeds.oldest import GET, ROOT_PATH, SET, UTC, finished, fresh
from tests.seeds.strangers import Receiver, ScriptedAgent


def test_s4_21_a_webhook_is_registered_with_its_token_and_event_filter(client: RawClient, receiver: Receiver) -> None:
    """The filter for events is accepted and ignored: each event has its type."""
    task = finished(client, "1")["id"]
    config = {"url": receiver.url, "token": "t", "events": ["status"]}
    kept = client.call(SET, {"id": task, "pushNotificationConfig": config}, ROOT_PATH)
    assert (kept["id"], kept["pushNotificationConfig"]["url"]) == (task, receiver.url)


def test_s4_22_a_webhook_without_https_is_an_unsupported_operation(other: RawClient, scripted: ScriptedAgent) -> None:
    """Under the later names it is an invalid parameter."""
    with other.enrolled("parrot:p", scripted.url, capabilities={"streaming": True}):
        task = fresh()
        other.call("tasks/send", message_v01("[]", task, "parrot"), ROOT_PATH)
        config = {"url": "http://93.184.216.34/hook"}
        assert other.code(SET, {"id": task, "pushNotificationConfig": config}, ROOT_PATH) == -32004
        assert other.code(SET, {"id": task, "pushNotificationConfig": {"url": "https://10.0.0.1/"}}, ROOT_PATH) == -32602
        inline = {**message_v01("[]", fresh(), "parrot"), "pushNotification": config}
        assert other.code("tasks/send", inline, ROOT_PATH) == -32004
        later = {"taskId": task, "pushNotificationConfig": config}
        assert other.code("tasks/pushNotificationConfig/set", later, ROOT_PATH) == -32602


def test_s4_23_the_webhook_gets_each_state_and_each_artifact(client: RawClient, receiver: Receiver) -> None:
    task = fresh()
    params = {**message_v01("2", task, "counter"), "pushNotification": {"url": receiver.url, "token": "hook-token"}}
    client.call("tasks/send", params, ROOT_PATH)
    receiver.wait(lambda r: bool(r.states) and r.states[-1] == "completed")
    assert {post.body["taskId"] for post in receiver.requests} == {task}
    assert {post.headers["authorization"] for post in receiver.requests} == {"Bearer hook-token"}
    states = [post.body for post in receiver.requests if post.body["eventType"] == "status"]
    works = [post.body["artifact"] for post in receiver.requests if post.body["eventType"] == "artifact"]
    assert [post["status"]["state"] for post in states] == ["working", "working", "completed"]
    assert all(UTC.fullmatch(post["timestamp"]) for post in states)
    assert texts({"artifacts": works}) == "0 1 "


def test_s4_24_a_failing_webhook_is_retried_without_harm_to_its_task(client: RawClient) -> None:
    """The hub retries with growing pauses for a day; then the event is a dead letter, and the webhook stays."""
    with Receiver((503, 200)) as receiver:
        task = fresh()
        began = time.monotonic()
        client.call("tasks/send", {**message_v01("1", task, "counter"), "pushNotification": {"url": receiver.url}}, ROOT_PATH)
        wait(lambda: client.call("tasks/get", {"id": task}, ROOT_PATH)["status"]["state"] == "completed")
        assert time.monotonic() - began < 5
        receiver.wait(lambda r: bool(r.states) and r.states[-1] == "completed")
        assert receiver.requests[1].body == receiver.requests[0].body
        assert receiver.requests[1].at - receiver.requests[0].at > 0.5


def test_s4_25_the_webhook_of_a_task_is_returned_without_its_token(client: RawClient, receiver: Receiver) -> None:
    task = finished(client, "1")["id"]
    for url in (receiver.url, f"{receiver.url}moved"):
        client.call(SET, {"id": task, "pushNotificationConfig": {"url": url, "token": "s3cret"}}, ROOT_PATH)
        found = client.call(GET, {"id": task}, ROOT_PATH)
        assert found["pushNotificationConfig"]["url"] == url
        assert "s3cret" not in json.dumps(found)
