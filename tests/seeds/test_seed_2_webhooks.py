"""Webhooks in 0.3: how they are set, which are refused, and what they are told."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.helpers.processes import HubProcess
from tests.seeds.door import ENDED, NO_TASK, Door, texts, wait
from tests.seeds.strangers import Parrot, Receiver

FLEET = "/a2a"
SET, GET, LIST, DELETE = (f"tasks/pushNotificationConfig/{name}" for name in ("set", "get", "list", "delete"))


def ended(receiver: Receiver) -> bool:
    return any(state in ENDED for state in receiver.states)


def hook(task: str, url: str, **members: Any) -> dict[str, Any]:
    return {"taskId": task, "pushNotificationConfig": {"url": url, **members}}


def test_s2_16_a_webhook_is_set_found_listed_and_deleted(door: Door, receiver: Receiver) -> None:
    task = door.send("counter", "1")["id"]
    kept = door.call(SET, hook(task, receiver.url, id="mine", token="t"), FLEET)
    assert kept == {"taskId": task, "pushNotificationConfig": {"id": "mine", "url": receiver.url}}
    assert door.call(GET, {"id": task, "pushNotificationConfigId": "mine"}, FLEET) == kept
    assert door.call(GET, {"id": task}, FLEET) == kept
    assert door.call(LIST, {"id": task}, FLEET) == [kept]
    assert door.call(DELETE, {"id": task, "pushNotificationConfigId": "mine"}, FLEET) is None
    assert door.call(LIST, {"id": task}, FLEET) == []


TOKENS = [
    ({"token": "top"}, "Bearer top"),
    ({"authentication": {"schemes": ["Bearer"], "credentials": "inner"}}, "Bearer inner"),
    ({"token": "top", "authentication": {"schemes": ["Bearer"], "credentials": "inner"}}, "Bearer top"),
    ({"token": "top", "authentication": {"schemes": ["Basic"], "credentials": "dTpw"}}, "Basic dTpw"),
]


@pytest.mark.parametrize(("secrets", "header"), TOKENS)
def test_s2_17_both_forms_of_a_token_are_taken(door: Door, receiver: Receiver, secrets: dict[str, Any], header: str) -> None:
    task = door.send("counter", "1")["id"]
    assert door.call(SET, hook(task, receiver.url, **secrets), FLEET)["taskId"] == task


@pytest.mark.parametrize(("secrets", "header"), TOKENS)
def test_s2_18_both_forms_become_the_authorization_of_the_call(
    door: Door, receiver: Receiver, secrets: dict[str, Any], header: str
) -> None:
    """Given both, the token wins as a bearer. Credentials of another scheme stand for themselves."""
    task = door.send("counter", "1")["id"]
    door.call(SET, hook(task, receiver.url, **secrets), FLEET)
    receiver.wait(ended)
    assert {post.headers["authorization"] for post in receiver.posts} == {header}


def test_s2_19_a_token_is_sent_under_its_own_header_too(door: Door, receiver: Receiver) -> None:
    task = door.send("counter", "1")["id"]
    door.call(SET, hook(task, receiver.url, token="shared-secret"), FLEET)
    receiver.wait(ended)
    assert {post.headers["x-a2a-notification-token"] for post in receiver.posts} == {"shared-secret"}


def test_s2_20_webhooks_and_tasks_have_plain_addresses(door: Door, receiver: Receiver) -> None:
    task = door.send("counter", "1")
    address = f"/a2a/tasks/{task['id']}"
    assert door.get(address).json() == task
    for body in ({"url": receiver.url, "token": "t"}, {"pushNotificationConfig": {"url": receiver.url, "id": "second"}}):
        set_there = door.post(f"{address}/pushNotificationConfig", body)
        assert set_there.status_code == 200, set_there.text
        assert set_there.json()["pushNotificationConfig"]["url"] == receiver.url
    listed = door.get(f"{address}/pushNotificationConfig").json()
    assert listed == door.call(LIST, {"id": task["id"]})
    assert {one["pushNotificationConfig"]["id"] for one in listed} == {task["id"], "second"}
    assert door.post(f"{address}/pushNotificationConfig", {"url": "http://10.0.0.1/"}).status_code == 400
    assert door.get(f"/a2a/tasks/{NO_TASK}").status_code == 404


REFUSED = [
    "https://10.1.2.3/hook",
    "https://172.16.0.1/hook",
    "https://192.168.1.1/hook",
    "https://127.0.0.1/hook",
    "https://localhost/hook",
    "https://169.254.169.254/latest/meta-data",
    "https://224.0.0.1/hook",
    "https://240.0.0.1/hook",
    "https://0.0.0.0/hook",
    "https://100.64.0.1/hook",
    "https://[::1]/hook",
    "https://[fd00::1]/hook",
    "https://[::ffff:10.0.0.1]/hook",
    "https://2130706433/hook",
    "https://no-such-host.invalid/hook",
    "ftp://93.184.216.34/hook",
    "file:///etc/passwd",
    "http://93.184.216.34/hook",
    "https://93.184.216.34:22/hook",
]


@pytest.fixture(scope="session")
def guarded(other: Door, parrot: Parrot) -> str:
    """A task at the hub whose webhooks are guarded as by default."""
    with other.enrolled("parrot:p", parrot.url, capabilities={"streaming": True}):
        task: str = other.send("parrot", json.dumps([parrot.status("completed")]))["id"]
        return task


@pytest.mark.parametrize("url", REFUSED)
def test_s2_21_a_webhook_into_a_private_network_is_refused_when_it_is_set(other: Door, guarded: str, url: str) -> None:
    assert other.code(SET, hook(guarded, url), FLEET) == -32602
    assert other.call(LIST, {"id": guarded}, FLEET) == []


def test_s2_22_hosts_and_networks_can_be_allowed_by_the_usual_names(other: Door, other_hub: HubProcess, guarded: str) -> None:
    """A host is then not looked up at all. A network that cannot be read is left out, with a warning."""
    for url in ("http://trusted.invalid:8080/hook", "http://127.9.1.2:9999/hook"):
        kept = other.call(SET, hook(guarded, url, id="allowed"), FLEET)
        assert kept["pushNotificationConfig"]["url"] == url
    other.call(DELETE, {"id": guarded, "pushNotificationConfigId": "allowed"}, FLEET)
    assert other.code(SET, hook(guarded, "http://127.8.1.2:9999/hook"), FLEET) == -32602
    (line,) = [line for line in other_hub.output.splitlines() if "nonsense" in line]
    assert "warning" in line


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (hook("", "https://10.0.0.1/"), -32602),
        ({"pushNotificationConfig": {"url": "https://10.0.0.1/"}}, -32602),
        ({"taskId": NO_TASK, "pushNotificationConfig": {}}, -32602),
        ({"taskId": NO_TASK, "pushNotificationConfig": {"token": "t"}}, -32602),
        (hook(NO_TASK, "https://10.0.0.1/"), -32001),
    ],
)
def test_s2_23_a_webhook_that_cannot_be_is_refused_with_its_code(door: Door, params: dict[str, Any], code: int) -> None:
    assert door.code(SET, params, FLEET) == code


def test_s2_23_the_text_says_what_is_wrong_with_the_address(other: Door, guarded: str) -> None:
    error = other.error(SET, hook(guarded, "https://10.0.0.1/"), FLEET)
    assert error["message"].startswith("webhook url rejected: ")


def test_s2_25_a_task_without_webhooks_has_none_to_get_an_empty_list_and_nothing_to_delete(door: Door) -> None:
    """Null for a config that is not there would be read as one without members."""
    task = door.send("counter", "1")["id"]
    assert door.code(GET, {"id": task}, FLEET) == -32602
    assert door.call(LIST, {"id": task}, FLEET) == []
    for _ in range(2):
        answer = door.answer(DELETE, {"id": task, "pushNotificationConfigId": "none"}, FLEET)
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": None}


def test_s2_26_a_secret_is_never_given_back(door: Door, receiver: Receiver) -> None:
    task = door.send("counter", "1")["id"]
    authentication = {"schemes": ["Bearer"], "credentials": "s3cret-inner"}
    calls = [
        (SET, hook(task, receiver.url, token="s3cret-top", authentication=authentication)),
        (GET, {"id": task}),
        (LIST, {"id": task}),
        ("ListTaskPushNotificationConfigs", {"taskId": task}),
    ]
    for method, params in calls:
        text = json.dumps(door.answer(method, params, FLEET))
        assert receiver.url in text
        assert "s3cret" not in text


def test_s2_28_a_webhook_that_fails_is_tried_again(door: Door) -> None:
    """Again and again for a day, with growing pauses, where others give up after three times."""
    task = door.send("counter", "1")["id"]
    with Receiver((500, 200)) as broken, Receiver((429, 200)) as busy:
        for name, receiver in (("broken", broken), ("busy", busy)):
            door.call(SET, hook(task, receiver.url, id=name), FLEET)
        for receiver in (broken, busy):
            receiver.wait(lambda r: len(r.posts) > 1)
            first, second, *_ = receiver.posts
            assert second.at - first.at > 0.5
            assert second.headers["webhook-id"] == first.headers["webhook-id"]
            assert second.body == first.body


def test_s2_28_a_webhook_that_refuses_is_not_tried_again(door: Door) -> None:
    with Receiver((400,)) as receiver:
        task = door.send("counter", "1")["id"]
        door.call(SET, hook(task, receiver.url), FLEET)
        receiver.wait(lambda r: bool(r.posts))
        dead: list[Any] = []

        def buried() -> bool:
            nonlocal dead
            letters = door.get("/registry/push/dead-letters").json()["dead_letters"]
            dead = [letter for letter in letters if letter["task"] == task]
            return len(dead) >= len(receiver.posts) > 0

        wait(buried)
        assert {letter["reason"] for letter in dead} == {"HTTP 400"}
        assert len({post.headers["webhook-id"] for post in receiver.posts}) == len(receiver.posts)


def test_s2_29_the_last_push_comes_at_once_and_brings_the_result(door: Door, receiver: Receiver) -> None:
    """Each event is pushed, in order: a receiver that wants the state alone reads the newest."""
    inline = {"blocking": False, "pushNotificationConfig": {"url": receiver.url}}
    task = door.send("counter", "3 0.1", configuration=inline)["id"]
    receiver.wait(ended)
    last = receiver.posts[-1].body
    assert (last["kind"], last["id"], last["status"]["state"], texts(last)) == ("task", task, "completed", "0 1 2 ")
    assert receiver.states[:2] == ["working", "working"]
    cursors = [int(post.headers["webhook-id"].rpartition(".")[2]) for post in receiver.posts]
    assert cursors == list(range(1, len(cursors) + 1))


def test_s2_30_a_webhook_set_after_the_end_hears_of_it_at_once(door: Door, receiver: Receiver) -> None:
    task = door.send("counter", "1")["id"]
    set_at = time.monotonic()
    door.call(SET, hook(task, receiver.url), FLEET)
    receiver.wait(ended)
    assert receiver.posts[-1].at - set_at < 5
    assert receiver.posts[-1].body["id"] == task
