"""Push notifications survive kills of the hub and outages of receivers: real processes."""

from __future__ import annotations

import base64
import hmac
import random
import socketserver
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rolecall.protocol.text.jsontext import parse
from tests.helpers.client import Reader, call, get_task, send, text_message
from tests.helpers.processes import HubProcess, Process, free_port, start_hub, start_worker, wait_for

WORKERS = "tests.acceptance.workers"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
SETTINGS: dict[str, Any] = {
    "lease_ttl": 4,
    "heartbeat": 0.5,
    "worker_silence": 5,
    "push_allowed_hosts": "127.0.0.1",
    "push_allowed_cidrs": "nonsense/8",
    "webhook_secret": SECRET,
    "log_level": "debug",
}


class Post(NamedTuple):
    id: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def config(self) -> str:
        return self.id.rpartition(".")[0]

    @property
    def cursor(self) -> int:
        return int(self.id.rpartition(".")[2])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore: the sender was killed."""


class Receiver:
    """A server on a fixed address that can be stopped and started again. It records a request before it answers."""

    def __init__(self) -> None:
        self.port = free_port()
        self.requests: list[Post] = []
        self.plan: list[int] = []
        self.connections = 0
        self.open_sockets: set[Any] = set()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def up(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver.connections += 1
                receiver.open_sockets.add(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = receiver.plan.pop(0) if receiver.plan else 200
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append(Post(headers["webhook-id"], status, headers, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                """Print nothing."""

        socketserver.TCPServer.allow_reuse_address = True
        self._server = _Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="receiver", daemon=True).start()

    def down(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            for connection in list(self.open_sockets):
                connection.close()
            self.open_sockets.clear()

    def of(self, task: str, config: str) -> list[Post]:
        return [post for post in list(self.requests) if post.config == f"{task}.{config}" and post.status == 200]


@contextmanager
def a_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.up()
    try:
        yield receiver
    finally:
        receiver.down()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with a_receiver() as receiver:
        yield receiver


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with start_hub(tmp_path / "hub", **SETTINGS) as hub:
        yield hub


def worker(hub: HubProcess, name: str, tmp_path: Path, attribute: str | None = None) -> Process:
    role = name.partition(":")[0]
    return start_worker(f"{WORKERS}:{attribute or role}", name, hub.url, log=tmp_path / f"{role}.log")


def restarted(hub: HubProcess) -> HubProcess:
    return start_hub(hub.data_dir, port=hub.port, **SETTINGS)


def set_push(hub: HubProcess, task: str, name: str, url: str, **members: Any) -> dict[str, Any]:
    config = {"id": name, "url": url, **members}
    return call(f"{hub.url}/", "tasks/pushNotificationConfig/set", {"taskId": task, "pushNotificationConfig": config})


def set_push_1_0(hub: HubProcess, task: str, name: str, url: str) -> None:
    params = {"taskId": task, "id": name, "url": url}
    body = {"jsonrpc": "2.0", "id": 1, "method": "CreateTaskPushNotificationConfig", "params": params}
    answer = httpx.post(f"{hub.url}/", json=body, headers={"A2A-Version": "1.0"}, trust_env=False).json()
    assert "result" in answer, answer


def last_cursor(hub: HubProcess, task: str) -> int:
    tasks = httpx.get(f"{hub.url}/registry/tasks", trust_env=False).json()["tasks"]
    return next(int(item["events"]) for item in tasks if item["id"] == task)


def wait_for_more(requests: list[Post], more: int) -> None:
    enough = len(requests) + more
    wait_for(lambda: len(requests) >= enough)


def check_newest(requests: list[Post], last: int) -> None:
    """Whole tasks in order, each newer than the one before unless it was sent again, and the last one."""
    cursors = [post.cursor for post in requests]
    assert cursors == sorted(cursors)
    assert cursors[-1] == last


def check_complete(requests: list[Post], last: int, *, repeats: int) -> None:
    """Every event from the first delivered one to the last, in order. Repeats have the same id and the same body."""
    first_seen = list(dict.fromkeys(post.cursor for post in requests))
    assert first_seen == list(range(first_seen[0], last + 1))
    cursors = [post.cursor for post in requests]
    assert cursors == sorted(cursors)
    assert len(cursors) - len(first_seen) <= repeats
    assert all(len({post.body for post in requests if post.id == name}) == 1 for name in {post.id for post in requests})


def check_signed(post: Post) -> None:
    content = f"{post.id}.{post.headers['webhook-timestamp']}.".encode() + post.body
    signature = base64.b64encode(hmac.digest(b"s" * 32, content, "sha256")).decode()
    assert post.headers["webhook-signature"] == f"v1,{signature}"


def test_a_receiver_that_is_down_while_the_hub_is_killed_gets_every_event_in_order(
    hub: HubProcess, receiver: Receiver, tmp_path: Path
) -> None:
    with worker(hub, "counter:a", tmp_path):
        reader = Reader(hub.url, "counter", "60 0.03")
        reader.start()
        wait_for(lambda: len(reader.chunks) > 2)
        set_push(hub, reader.task, "old", receiver.url, token="tok-en")
        set_push_1_0(hub, reader.task, "new", receiver.url)
        wait_for(lambda: len(receiver.of(reader.task, "old")) > 3 and len(receiver.of(reader.task, "new")) > 3)
        receiver.down()
        seen = len(reader.chunks)
        wait_for(lambda: len(reader.chunks) > seen + 5)
        hub.kill9()
        with restarted(hub) as again:
            wait_for(lambda: get_task(again.url, reader.task)["status"]["state"] == "completed")
            requests_before = len(receiver.requests)
            receiver.up()
            back = time.monotonic()
            last = last_cursor(again, reader.task)
            wait_for(
                lambda: all(last in [post.cursor for post in receiver.of(reader.task, name)] for name in ("old", "new")), 40
            )
            assert time.monotonic() - back < 35
            final = get_task(again.url, reader.task)
    old, new = receiver.of(reader.task, "old"), receiver.of(reader.task, "new")
    assert requests_before < len(old) + len(new)
    check_newest(old, last)
    check_complete(new, last, repeats=2)
    assert parse(old[-1].body) == final
    assert parse(new[-1].body)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert {post.headers["x-a2a-notification-token"] for post in old} == {"tok-en"}
    assert {post.headers["content-type"] for post in new} == {"application/a2a+json"}
    for post in (*old, *new):
        check_signed(post)


def test_a_hub_killed_repeatedly_during_delivery_keeps_every_event_in_order(
    hub: HubProcess, receiver: Receiver, tmp_path: Path
) -> None:
    rng, kill_count, running = random.Random(58), 3, hub
    with worker(hub, "counter:a", tmp_path):
        readers = [Reader(hub.url, "counter", "120 0.03") for _ in range(3)]
        for reader in readers:
            reader.start()
        wait_for(lambda: all(reader.chunks for reader in readers))
        for reader in readers:
            set_push_1_0(hub, reader.task, "c", receiver.url)
        for _ in range(kill_count):
            wait_for_more(receiver.requests, 5)
            time.sleep(rng.uniform(0, 0.3))
            running.kill9()
            running = restarted(hub)
        with running:
            wait_for(lambda: all(get_task(running.url, r.task)["status"]["state"] == "completed" for r in readers), 20)
            last_cursors = [last_cursor(running, reader.task) for reader in readers]
            wait_for(lambda: [receiver.of(reader.task, "c")[-1].cursor for reader in readers] == last_cursors, 20)
    for reader, end in zip(readers, last_cursors, strict=True):
        check_complete(receiver.of(reader.task, "c"), end, repeats=kill_count)
    again = Counter(post.id for post in receiver.requests)
    assert sum(count - 1 for count in again.values()) <= kill_count * len(readers)


def test_an_inline_config_gets_the_result_and_a_late_one_the_current_task(
    hub: HubProcess, receiver: Receiver, tmp_path: Path
) -> None:
    """The worker can only answer. It does not support push."""
    inline = {"pushNotificationConfig": {"id": "inline", "url": receiver.url}}
    with worker(hub, "echo:a", tmp_path, "instant"):
        params = {**text_message("hello"), "configuration": {"blocking": True, **inline}}
        task = call(f"{hub.url}/agents/echo/", "message/send", params)["result"]
        wait_for(lambda: bool(requests := receiver.of(task["id"], "inline")) and parse(requests[-1].body) == task)
        set_push(hub, task["id"], "late", receiver.url)
        wait_for(lambda: len(receiver.of(task["id"], "late")) == 1)
        assert parse(receiver.of(task["id"], "late")[0].body) == task


def test_a_message_that_is_sent_again_brings_its_receiver_the_newest_event(
    hub: HubProcess, receiver: Receiver, tmp_path: Path
) -> None:
    """Its sender may have moved in between, and the hub may have been killed."""

    def send_again(running: HubProcess, **config: Any) -> str:
        params = {"message": message, "configuration": {"taskPushNotificationConfig": {"url": receiver.url, **config}}}
        task: dict[str, Any] = call(f"{running.url}/agents/counter/", "SendMessage", params)["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        return str(task["id"])

    message = {"messageId": "the-same", "role": "ROLE_USER", "parts": [{"text": "3 0.01"}]}
    with worker(hub, "counter:a", tmp_path), a_receiver() as left:
        task = send_again(hub, url=left.url)
        last = last_cursor(hub, task)
        wait_for(lambda: [post.cursor for post in left.of(task, task)][-1:] == [last])
        hub.kill9()
        with restarted(hub) as again:
            secrets = {"token": "tok", "authentication": {"scheme": "Basic", "credentials": "dTpw"}}
            assert send_again(again, **secrets) == task
            wait_for(lambda: bool(receiver.of(task, task)))
    (post,) = receiver.requests
    assert post.cursor == last
    assert parse(post.body)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (post.headers["authorization"], post.headers["x-a2a-notification-token"]) == ("Basic dTpw", "tok")
    check_signed(post)


def test_a_refused_notification_is_listed_and_can_be_sent_again(hub: HubProcess, receiver: Receiver, tmp_path: Path) -> None:
    with worker(hub, "echo:a", tmp_path, "instant"):
        task = send(hub.url, "echo", "hello")["id"]
    receiver.plan.append(404)
    set_push(hub, task, "c", receiver.url)
    wait_for(lambda: len(receiver.requests) == 1)

    def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(f"{hub.url}/registry/push/dead-letters", trust_env=False).json()["dead_letters"]
        return found

    wait_for(lambda: len(letters()) == 1)
    (letter,) = letters()
    assert (letter["task"], letter["config"], letter["url"], letter["reason"]) == (task, "c", receiver.url, "HTTP 404")
    place = f"{hub.url}/registry/push/dead-letters/{task}/c/{letter['cursor']}/redeliver"
    assert httpx.post(place, trust_env=False).status_code == 202
    wait_for(lambda: len(receiver.of(task, "c")) == 1)
    assert receiver.requests[0].id == receiver.requests[1].id
    wait_for(lambda: letters() == [])
    answer = httpx.post(place, trust_env=False)
    assert (answer.status_code, answer.json()["reason"]) == (404, "DEAD_LETTER_NOT_FOUND")
    metrics = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    for outcome in ("delivered", "dead"):
        assert f'a2a_hub_push_deliveries_total{{outcome="{outcome}"}} 1.0' in metrics


def test_secrets_are_in_no_file_and_in_no_response(hub: HubProcess, receiver: Receiver, tmp_path: Path) -> None:
    with worker(hub, "echo:a", tmp_path, "instant"):
        task = send(hub.url, "echo", "hello")["id"]
    receiver.plan.extend([500, 404])
    members = {"token": "tok-HIDDEN", "authentication": {"schemes": ["Basic"], "credentials": "cred-HIDDEN"}}
    answers = [set_push(hub, task, "c", receiver.url, **members)]
    wait_for(lambda: len(receiver.requests) == 2)
    named = {"id": task, "pushNotificationConfigId": "c"}
    answers += [call(f"{hub.url}/", f"tasks/pushNotificationConfig/{method}", named) for method in ("get", "list")]
    answers.append(httpx.get(f"{hub.url}/registry/push/dead-letters", trust_env=False).json())
    assert receiver.requests[0].headers["x-a2a-notification-token"] == "tok-HIDDEN"
    assert receiver.requests[0].headers["authorization"] == "Basic cred-HIDDEN"
    assert "HIDDEN" not in repr(answers)
    assert "schemes" in repr(answers[0])
    files = [path for path in hub.data_dir.iterdir() if path.is_file()]
    assert {"rolecall.db", "rolecall.db-wal", "secret.key", "hub.log"} <= {path.name for path in files}
    for path in files:
        assert b"HIDDEN" not in path.read_bytes(), path
    assert stat.S_IMODE((hub.data_dir / "secret.key").stat().st_mode) == 0o600


FORBIDDEN_URLS = [
    "http://127.0.0.2:{}/",
    "https://localhost:{}/",
    "https://127.1:{}/",
    "https://2130706433:{}/",
    "https://[::1]:{}/",
    "https://[::ffff:127.0.0.1]:{}/",
    "https://[64:ff9b::7f00:1]:{}/",
    "https://a@127.0.0.1:{}/",
    "https://10.0.0.1/",
    "https://8.8.8.8:22/",
]


def test_forbidden_urls_are_refused_without_a_connection(hub: HubProcess, receiver: Receiver, tmp_path: Path) -> None:
    with worker(hub, "echo:a", tmp_path, "instant"):
        task = send(hub.url, "echo", "hello")["id"]
        for url in FORBIDDEN_URLS:
            error = set_push(hub, task, "c", url.format(receiver.port))["error"]
            assert error["code"] == -32602
            assert error["message"].startswith("webhook url rejected: ")
            inline = {"configuration": {"pushNotificationConfig": {"url": url.format(receiver.port)}}}
            refused = call(f"{hub.url}/agents/echo/", "message/send", {**text_message("again"), **inline})["error"]
            assert refused["message"].startswith("webhook url rejected: ")
    assert call(f"{hub.url}/", "tasks/pushNotificationConfig/list", {"id": task})["result"] == []
    assert receiver.requests == []
    assert receiver.connections == 0
    assert '"event": "bad_network"' in hub.output
