"""What may be how large: a request's head, a worker's card, messages, events, answers. The refusal names the setting."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from tests.acceptance.loadclients import forget_peak, memory_peak, memory_used
from tests.helpers.processes import HubProcess, Process, free_port, start_hub, start_script, start_worker, wait_for

OFFER = {"url": "http://127.0.0.1:9/", "boot": "b"}


def asked(url: str, size: int, *, headers: int = 1) -> httpx.Response:
    """A request with about `size` bytes of headers."""
    more = {f"x-{number}": "a" * (size // headers) for number in range(headers)}
    return httpx.get(f"{url}/livez", headers=more, trust_env=False, timeout=20)


def enrolled(url: str, size: int) -> httpx.Response:
    card = {"name": "large", "description": "x" * size, "skills": []}
    return httpx.put(f"{url}/registry/agents/large/a", json={**OFFER, "card": card}, trust_env=False, timeout=20)


def test_a_head_may_be_as_large_as_its_setting_says(tmp_path: Path) -> None:
    with start_hub(tmp_path / "small", max_head="8KiB") as hub:
        assert asked(hub.url, 7_000).status_code == 200
        refused = asked(hub.url, 9_000)
        assert (refused.status_code, refused.json()["reason"]) == (431, "HEAD_TOO_LARGE")
        assert "8192 bytes" in refused.json()["detail"] and "ROLECALL_MAX_HEAD" in refused.json()["detail"]
    with start_hub(tmp_path / "large", max_head="200KiB") as hub:
        assert asked(hub.url, 190_000, headers=4).status_code == 200
        assert asked(hub.url, 210_000, headers=4).status_code == 431


def test_a_head_without_end_is_refused_by_the_same_setting(tmp_path: Path) -> None:
    with start_hub(tmp_path, max_head="8KiB") as hub:
        refused = asked(hub.url, 40_000)
        assert (refused.status_code, refused.json()["reason"]) == (431, "HEAD_TOO_LARGE")
        assert "ROLECALL_MAX_HEAD" in refused.json()["detail"]


def test_a_card_may_be_as_large_as_its_setting_says(tmp_path: Path) -> None:
    with start_hub(tmp_path / "small", max_card="2KiB") as hub:
        assert enrolled(hub.url, 1_000).status_code == 201
        refused = enrolled(hub.url, 3_000)
        assert (refused.status_code, refused.json()["reason"]) == (422, "OFFER_INVALID")
        assert "2048 bytes" in refused.json()["detail"] and "ROLECALL_MAX_CARD" in refused.json()["detail"]
    with start_hub(tmp_path / "large", max_card="256KiB") as hub:
        assert enrolled(hub.url, 200_000).status_code == 201


# --- messages, events and answers


FILE = 8_000_000
MEMORY = 8
"""As many times the size of a message may the hub grow. What is measured is 3 to 6 times (docs/reference/sizes.md)."""
BACK = 40
"""MiB that may stay for a while: one message in the caches, one in the last answer of the store, and the store's own pages."""
METHODS = {
    "0.1": ("tasks/send", "tasks/sendSubscribe", "tasks/get"),
    "0.3": ("message/send", "message/stream", "tasks/get"),
    "1.0": ("SendMessage", "SendStreamingMessage", "GetTask"),
}


class FileHub(NamedTuple):
    """A hub with default limits. Its roles are `files` and dialects, with `-poll` for workers that do not stream."""

    hub: HubProcess

    def call(self, dialect: str, role: str, part: dict[str, Any], *, stream: bool) -> str:
        """All text of the answer, and of the task in the end."""
        name = uuid4().hex
        message: dict[str, Any] = {"role": "ROLE_USER" if dialect == "1.0" else "user", "parts": [part]}
        message |= {} if dialect == "0.1" else {"messageId": name}
        params = {"message": message, **({"id": name} if dialect == "0.1" else {})}
        text = self._ask(role, METHODS[dialect][stream], params, dialect)
        if dialect == "0.1" and not stream and "error" not in text:  # it does not wait
            wait_for(lambda: self._state(role, name) in ("completed", "failed"), 20)
            text = self._ask(role, "tasks/get", {"id": name}, dialect)
        return text

    def _state(self, role: str, name: str) -> str:
        task = json.loads(self._ask(role, "tasks/get", {"id": name}, "0.1"))["result"]
        return str(task["status"]["state"])

    def _ask(self, role: str, method: str, params: dict[str, Any], dialect: str) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"A2A-Version": dialect}
        return httpx.post(f"{self.hub.url}/agents/{role}/", json=body, headers=headers, trust_env=False, timeout=60).text


def file_part(dialect: str, content: str) -> dict[str, Any]:
    if dialect == "1.0":
        return {"raw": content}
    return {"type" if dialect == "0.1" else "kind": "file", "file": {"bytes": content}}


def text_part(dialect: str, text: str) -> dict[str, Any]:
    return {"text": text} if dialect == "1.0" else {"type" if dialect == "0.1" else "kind": "text", "text": text}


def file_worker(hub: HubProcess, role: str, dialect: str, *, streaming: bool) -> Process:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    argv = [sys.executable, "-m", "tests.acceptance.file_worker", str(port), dialect]
    worker = start_script(argv, log=hub.data_dir / f"{role}.log", ready_url=url)
    way = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": dialect}
    card = {"name": role, "supportedInterfaces": [way], "capabilities": {"streaming": streaming}}
    offer = {"url": url, "card": card}
    httpx.put(f"{hub.url}/registry/agents/{role}/a", json=offer, trust_env=False).raise_for_status()
    return worker


@pytest.fixture(scope="module")
def file_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileHub]:
    folder = tmp_path_factory.mktemp("files")
    with ExitStack() as closing:
        hub = closing.enter_context(start_hub(folder))
        for dialect in ("0.3", "1.0"):
            closing.enter_context(file_worker(hub, dialect, dialect, streaming=True))
            closing.enter_context(file_worker(hub, f"{dialect}-poll", dialect, streaming=False))
        own = start_worker("tests.acceptance.workers:files", "files:a", hub.url, log=folder / "own.log")
        closing.enter_context(own)
        file_hub = FileHub(hub)
        file_hub.call("0.3", "files", file_part("0.3", "A" * FILE), stream=True)  # the store's own memory grows once
        yield file_hub
        assert "Traceback" not in hub.output


SHORT = [
    ("0.1", "1.0", True),
    ("0.3", "1.0-poll", False),
    ("1.0", "0.3", True),
    ("1.0", "0.3-poll", False),
    ("0.3", "files", True),
]
ALL = [
    (caller, role, stream)
    for caller in METHODS
    for role in ("0.3", "0.3-poll", "1.0", "1.0-poll", "files")
    for stream in (True, False)
]


@pytest.mark.parametrize(
    ("caller", "role", "stream"), [pytest.param(*way, marks=[] if way in SHORT else pytest.mark.soak) for way in ALL]
)
def test_a_file_of_8_mb_passes_inline_both_ways_in_little_memory(
    file_hub: FileHub, caller: str, role: str, stream: bool
) -> None:
    content = b64encode(bytes(range(250)) * (FILE // 250)).decode()
    hub, allowed = file_hub.hub, MEMORY * len(content) / 1024**2
    before = memory_used(hub)
    for part, expected in (
        (file_part(caller, content), f'"text":"{FILE}"'),
        (text_part(caller, str(FILE)), f'"{b64encode(b"a" * FILE).decode()}"'),
    ):
        forget_peak(hub)
        at_start = memory_used(hub)
        assert expected in file_hub.call(caller, role, part, stream=stream)
        grown = memory_peak(hub) - at_start
        print(f"\n{caller} to {role}: {grown:+.0f} MiB, {grown * 1024**2 / len(content):.1f} times the message")
        assert grown <= allowed
    wait_for(lambda: memory_used(hub) <= before + BACK, 10)


@pytest.mark.parametrize("one", ["{}", "[]", '{"":0}', '"a"', "1.5"])
def test_millions_of_small_values_are_refused_before_they_are_made(file_hub: FileHub, one: str) -> None:
    """They would take up to 500 MB, and hold the loop for a second."""
    hub, many = file_hub.hub, f"[{','.join([one] * (15_000_000 // (len(one) + 1)))}]"
    forget_peak(hub)
    before = memory_used(hub)
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{hub.url}/agents/files/", content=many, headers=headers, trust_env=False, timeout=60).json()
    assert answer["error"]["code"] == -32600 and "more than 400000 numbers" in answer["error"]["message"]
    assert memory_peak(hub) - before < MEMORY * 15


def test_what_is_above_a_limit_is_refused_with_the_name_of_its_setting(tmp_path: Path) -> None:
    limits = {"max_body": "256KiB", "max_event": "128KiB", "max_log": "384KiB"}
    with start_hub(tmp_path, **limits) as hub, ExitStack() as closing:
        file_hub = FileHub(hub)
        closing.enter_context(file_worker(hub, "streams", "0.3", streaming=True))
        closing.enter_context(file_worker(hub, "polled", "1.0", streaming=False))
        for dialect in METHODS:
            for stream in (True, False):
                large_message = file_hub.call(dialect, "streams", text_part(dialect, "1" * 300_000), stream=stream)
                assert "larger than 262144 bytes" in large_message and "ROLECALL_MAX_BODY on the hub" in large_message
                assert "POST /registry/files" in large_message
                large_event = file_hub.call(dialect, "streams", text_part(dialect, "200000"), stream=stream)
                assert "more than 131072 bytes" in large_event and "ROLECALL_MAX_EVENT on the hub" in large_event
                large_task = file_hub.call(dialect, "polled", text_part(dialect, "400000"), stream=stream)
                assert "more than 393216 bytes" in large_task and "ROLECALL_MAX_LOG on the hub" in large_task
