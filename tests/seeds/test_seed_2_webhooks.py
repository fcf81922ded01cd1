"""Webhooks in 0.3: how they are set, which are refused, and what they receive."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.helpers.processes import HubProcess
from tests.seeds.door import ENDED, NO_TASK, RawClient, texts, wait
from tests.seeds.strangers import Receiver, ScriptedAgent

A2A_PATH = "/a2a"
SET, GET, LIST, DELETE = (f"tasks/pushNotificationConfig/{name}" for name in ("set", "get", "list", "delete"))


def ended(receiver: Receiver) -> bool:
    return any(state in ENDED for state in receiver.states)


def hook(task: str, url: str, **members: Any) -> dict[str, Any]:
    return {"taskId": task, "pushNotificationConfig": {"url": url, **members}}


def test_s2_16_a_webhook_is_set_read_listed_and_deleted(client: RawClient, receiver: Receiver) -> None:
    task = client.send("counter", "1")["id"]
    kept = client.call(SET, hook(task, receiver.url, id="mine", token="t"), A2A_PATH)
    assert kept == {"taskId": task, "pushNotificationConfig": {"id": "mine", "url": receiver.url}}
    assert client.call(GET, {"id": task, "pushNotificationConfigId": "mine"}, A2A_PATH) == kept
    assert client.call(GET, {"id": task}, A2A_PATH) == kept
    assert client.call(LIST, {"id": task}, A2A_PATH) == [kept]
    assert client.call(DELETE, {"id": task, "pushNotificationConfigId": "mine"}, A2A_PATH) is None
    assert client.call(LIST, {"id": task}, A2A_PATH) == []


TOKENS = [
    ({"token": "top"}, "Bearer top"),
    ({"authentication": {"schemes": ["Bearer"], "credentials": "inner"}}, "Bearer inner"),
    ({"token": "top", "authentication": {"schemes": ["Bearer"], "credentials": "inner"}}, "Bearer top"),
    ({"token": "top", "authentication": {"schemes": ["Basic"], "credentials": "dTpw"}}, "Basic dTpw"),
]


@pytest.mark.parametrize(("secrets", "header"), TOKENS)
def test_s2_17_both_forms_of_a_token_are_accepted(
    client: RawClient, receiver: Receiver, secrets: dict[str, Any], header: str
) -> None:
    task = client.send("counter", "1")["id"]
    assert client.call(SET, hook(task, receiver.url, **secrets), A2A_PATH)["taskId"] == task


@pytest.mark.parametrize(("secrets", "header"), TOKENS)
def test_s2_18_both_forms_become_the_authorization_header(
    client: RawClient, receiver: Receiver, secrets: dict[str, Any], header: str
) -> None:
    """With both, the token wins as the bearer. Credentials of another scheme are sent unchanged."""
    task = client.send("counter", "1")["id"]
    client.call(SET, hook(task, receiver.url, **secrets), A2A_PATH)
    receiver.wait(ended)
    assert {post.headers["authorization"] for post in receiver.requests} == {header}


def test_s2_19_a_token_is_also_sent_in_its_own_header(client: RawClient, receiver: Receiver) -> None:
    task = client.send("counter", "1")["id"]
    client.call(SET, hook(task, receiver.url, token="shared-secret"), A2A_PATH)
    receiver.wait(ended)
    assert {post.headers["x-a2a-notification-token"] for post in receiver.requests} == {"shared-secret"}


def test_s2_20_webhooks_and_tasks_have_rest_addresses(client: RawClient, receiver: Receiver) -> None:
    task = client.send("counter", "1")
    address = f"/a2a/tasks/{task['id']}"
    assert client.get(address).json() == task
    for body in ({"url": receiver.url, "token": "t"}, {"pushNotificationConfig": {"url": receiver.url, "id": "second"}}):
        set_there = client.post(f"{address}/pushNotificationConfig", body)
        assert set_there.status_code == 200, set_there.text
        assert set_there.json()["pushNotificationConfig"]["url"] == receiver.url
    configs = client.get(f"{address}/pushNotificationConfig").json()
    assert configs == client.call(LIST, {"id": task["id"]})
    assert {one["pushNotificationConfig"]["id"] for one in configs} == {task["id"], "second"}
    assert client.post(f"{address}/pushNotificationConfig", {"url": "http://10.0.0.1/"}).status_code == 400
    assert client.get(f"/a2a/tasks/{NO_TASK}").status_code == 404


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


@pytest.fixture(scope="package")
def private_task(other: RawClient, scripted: ScriptedAgent) -> str:
    """A task at the hub that restricts webhooks as by default."""
    with other.enrolled("parrot:p", scripted.url, capabilities={"streaming": True}):
        task: str = other.send("parrot", json.dumps([scripted.status("completed")]))["id"]
        return task


@pytest.mark.parametrize("url", REFUSED)
def test_s2_21_a_webhook_into_a_private_network_is_refused_when_it_is_set(
    other: RawClient, private_task: str, url: str
) -> None:
    assert other.code(SET, hook(private_task, url), A2A_PATH) == -32602
    assert other.call(LIST, {"id": private_task}, A2A_PATH) == []


def test_s2_22_hosts_and_networks_can_be_allowed_by_the_usual_variables(
    other: RawClient, other_hub: HubProcess, private_task: str
) -> None:
    """The hub does not resolve an allowed host. It ignores an invalid network, with a warning."""
    for url in ("http://trusted.invalid:8080/hook", "http://127.9.1.2:9999/hook"):
        kept = other.call(SET, hook(private_task, url, id="allowed"), A2A_PATH)
        assert kept["pushNotificationConfig"]["url"] == url
    other.call(DELETE, {"id": private_task, "pushNotificationConfigId": "allowed"}, A2A_PATH)
    assert other.code(SET, hook(private_task, "http://127.8.1.2:9999/hook"), A2A_PATH) == -32602
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
def test_s2_23_an_invalid_webhook_is_refused_with_its_code(client: RawClient, params: dict[str, Any], code: int) -> None:
    assert client.code(SET, params, A2A_PATH) == code


def test_s2_23_the_error_text_has_the_reason(other: RawClient, private_task: str) -> None:
    error = other.error(SET, hook(private_task, "https://10.0.0.1/"), A2A_PATH)
    assert error["message"].startswith("webhook url rejected: ")


def test_s2_25_without_webhooks_get_fails_list_is_empty_and_delete_does_nothing(client: RawClient) -> None:
    """A client would read null as a config without members."""
    task = client.send("counter", "1")["id"]
    assert client.code(GET, {"id": task}, A2A_PATH) == -32602
    assert client.call(LIST, {"id": task}, A2A_PATH) == []
    for _ in range(2):
        answer = client.answer(DELETE, {"id": task, "pushNotificationConfigId": "none"}, A2A_PATH)
        assert answer == {"jsonrpc": "2.0", "id": 1, "result": None}


def test_s2_26_a_secret_is_never_returned(client: RawClient, receiver: Receiver) -> None:
    task = client.send("counter", "1")["id"]
    authentication = {"schemes": ["Bearer"], "credentials": "s3cret-inner"}
    calls = [
        (SET, hook(task, receiver.url, token="s3cret-top", authentication=authentication)),
        (GET, {"id": task}),
        (LIST, {"id": task}),
        ("ListTaskPushNotificationConfigs", {"taskId": task}),
    ]
    for method, params in calls:
        text = json.dumps(client.answer(method, params, A2A_PATH))
        assert receiver.url in text
        assert "s3cret" not in text


def test_s2_28_a_failing_webhook_is_retried(client: RawClient) -> None:
    """The hub retries for a day, with growing pauses; other systems give up after three attempts."""
    task = client.send("counter", "1")["id"]
    with Receiver((500, 200)) as broken, Receiver((429, 200)) as busy:
        for name, receiver in (("broken", broken), ("busy", busy)):
            client.call(SET, hook(task, receiver.url, id=name), A2A_PATH)
        for receiver in (broken, busy):
            receiver.wait(lambda r: len(r.requests) > 1)
            first, second, *_ = receiver.requests
            assert second.at - first.at > 0.5
            assert second.headers["webhook-id"] == first.headers["webhook-id"]
            assert second.body == first.body


def test_s2_28_a_webhook_that_refuses_is_not_retried(client: RawClient) -> None:
    with Receiver((400,)) as receiver:
        task = client.send("counter", "1")["id"]
        client.call(SET, hook(task, receiver.url), A2A_PATH)
        receiver.wait(lambda r: bool(r.requests))
        dead: list[Any] = []

        def all_dead() -> bool:
            nonlocal dead
            letters = client.get("/registry/push/dead-letters").json()["dead_letters"]
            dead = [letter for letter in letters if letter["task"] == task]
            return len(dead) >= len(receiver.requests) > 0

        wait(all_dead)
        assert {letter["reason"] for letter in dead} == {"HTTP 400"}
        assert len({post.headers["webhook-id"] for post in receiver.requests}) == len(receiver.requests)


def test_s2_29_the_last_push_is_sent_at_once_with_the_result(client: RawClient, receiver: Receiver) -> None:
    """Whole tasks are pushed, in order, and the newest stands for those that are owed with it."""
    inline = {"blocking": False, "pushNotificationConfig": {"url": receiver.url}}
    task = client.send("counter", "3 0.1", configuration=inline)["id"]
    receiver.wait(ended)
    last = receiver.requests[-1].body
    assert (last["kind"], last["id"], last["status"]["state"], texts(last)) == ("task", task, "completed", "0 1 2 ")
    assert receiver.states[0] == "working"
    cursors = [int(post.headers["webhook-id"].rpartition(".")[2]) for post in receiver.requests]
    assert cursors == sorted(set(cursors))


def test_s2_30_a_webhook_set_after_the_end_gets_the_end_at_once(client: RawClient, receiver: Receiver) -> None:
    task = client.send("counter", "1")["id"]
    set_at = time.monotonic()
    client.call(SET, hook(task, receiver.url), A2A_PATH)
    receiver.wait(ended)
    assert receiver.requests[-1].at - set_at < 5
    assert receiver.requests[-1].body["id"] == task
