"""Webhooks under the oldest names: each state and each artifact in a form of its own."""

from __future__ import annotations

import json
import time

from tests.seeds.door import Door, texts, told, wait
from tests.seeds.oldest import DOOR, GET, SET, UTC, finished, fresh
from tests.seeds.strangers import Parrot, Receiver


def test_s4_21_a_webhook_is_registered_with_its_token_and_a_wish(door: Door, receiver: Receiver) -> None:
    """The wish for certain events only is taken and not heeded: each event says of which type it is."""
    task = finished(door, "1")["id"]
    config = {"url": receiver.url, "token": "t", "events": ["status"]}
    kept = door.call(SET, {"id": task, "pushNotificationConfig": config}, DOOR)
    assert (kept["id"], kept["pushNotificationConfig"]["url"]) == (task, receiver.url)


def test_s4_22_a_webhook_that_is_not_https_is_no_supported_operation(other: Door, parrot: Parrot) -> None:
    """Under the later names it is a wrong parameter."""
    with other.enrolled("parrot:p", parrot.url, capabilities={"streaming": True}):
        task = fresh()
        other.call("tasks/send", told("[]", task, "parrot"), DOOR)
        config = {"url": "http://93.184.216.34/hook"}
        assert other.code(SET, {"id": task, "pushNotificationConfig": config}, DOOR) == -32004
        assert other.code(SET, {"id": task, "pushNotificationConfig": {"url": "https://10.0.0.1/"}}, DOOR) == -32602
        inline = {**told("[]", fresh(), "parrot"), "pushNotification": config}
        assert other.code("tasks/send", inline, DOOR) == -32004
        later = {"taskId": task, "pushNotificationConfig": config}
        assert other.code("tasks/pushNotificationConfig/set", later, DOOR) == -32602


def test_s4_23_each_state_and_each_artifact_is_told_to_the_webhook(door: Door, receiver: Receiver) -> None:
    task = fresh()
    params = {**told("2", task, "counter"), "pushNotification": {"url": receiver.url, "token": "hook-token"}}
    door.call("tasks/send", params, DOOR)
    receiver.wait(lambda r: bool(r.states) and r.states[-1] == "completed")
    assert {post.body["taskId"] for post in receiver.posts} == {task}
    assert {post.headers["authorization"] for post in receiver.posts} == {"Bearer hook-token"}
    states = [post.body for post in receiver.posts if post.body["eventType"] == "status"]
    works = [post.body["artifact"] for post in receiver.posts if post.body["eventType"] == "artifact"]
    assert [post["status"]["state"] for post in states] == ["working", "working", "completed"]
    assert all(UTC.fullmatch(post["timestamp"]) for post in states)
    assert texts({"artifacts": works}) == "0 1 "


def test_s4_24_a_webhook_that_fails_is_tried_again_and_harms_no_task(door: Door) -> None:
    """With growing pauses, for a day; then the event is a dead letter, and the webhook stays."""
    with Receiver((503, 200)) as receiver:
        task = fresh()
        began = time.monotonic()
        door.call("tasks/send", {**told("1", task, "counter"), "pushNotification": {"url": receiver.url}}, DOOR)
        wait(lambda: door.call("tasks/get", {"id": task}, DOOR)["status"]["state"] == "completed")
        assert time.monotonic() - began < 5
        receiver.wait(lambda r: bool(r.states) and r.states[-1] == "completed")
        assert receiver.posts[1].body == receiver.posts[0].body
        assert receiver.posts[1].at - receiver.posts[0].at > 0.5


def test_s4_25_the_webhook_of_a_task_is_given_back_without_its_token(door: Door, receiver: Receiver) -> None:
    task = finished(door, "1")["id"]
    for url in (receiver.url, f"{receiver.url}moved"):
        door.call(SET, {"id": task, "pushNotificationConfig": {"url": url, "token": "s3cret"}}, DOOR)
        found = door.call(GET, {"id": task}, DOOR)
        assert found["pushNotificationConfig"]["url"] == url
        assert "s3cret" not in json.dumps(found)
