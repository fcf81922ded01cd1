"""A token in a file is read again when the file changes, by clients and workers that run on."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, answer, chunk, chunked_head
from tests.unit.worker_sdk.test_client import OPEN, TASK, fast, fault, frame, status_update, streamed, text_update
from worker_sdk import AuthError, HubClient, Lease, LeaseState
from worker_sdk.calling.http import HubLink
from worker_sdk.config import TokenFile, hub_address
from worker_sdk.errors import ConfigError

pytestmark = pytest.mark.virtual_time

REFUSAL = json.dumps({"reason": "UNAUTHENTICATED", "detail": "no"}).encode()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "token"
    file.write_text("old\n")
    monkeypatch.delenv("ROLECALL_TOKEN", raising=False)
    monkeypatch.setenv("ROLECALL_TOKEN_FILE", str(file))
    return file


def replace(file: Path, token: str) -> None:
    file.write_text(token + "\n")


def replace_unchanged(file: Path, token: str) -> None:
    """As long as the token before, and within one tick of the file system's clock."""
    before = file.stat()
    file.write_text(token + "\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


class Locked:
    """A server that accepts one token. `seen`: the tokens that were sent. `on_refusal` happens as it refuses one."""

    def __init__(self, accepted: str, body: bytes = b'{"status": "ok"}') -> None:
        self.accepted = accepted
        self.seen: list[str] = []
        self.on_refusal: Callable[[], object] = lambda: None
        self._body = body

    async def __call__(self, peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            self.seen.append(token)
            if token == self.accepted:
                await peer.write(self._body if self._body.startswith(b"HTTP") else answer(self._body))
            else:
                self.on_refusal()
                await peer.write(answer(REFUSAL, status="401 No", kind="application/problem+json"))


# --- the file


def test_the_token_is_that_of_the_file_as_it_is_now(file: Path) -> None:
    token = TokenFile(file)
    assert str(token) == "old"
    file.write_text("newer\n")
    assert str(token) == "newer"
    (file.parent / "next").write_text("newest")
    (file.parent / "next").replace(file)
    assert str(token) == "newest"


def test_while_the_file_is_being_replaced_the_token_stays(file: Path) -> None:
    token = TokenFile(file)
    file.write_text("")
    assert str(token) == "old"
    file.unlink()
    assert str(token) == "old"
    file.write_bytes(b"\xff\xfe")
    assert str(token) == "old"
    file.write_text("half of\n")
    assert str(token) == "old"
    file.write_text("\tnew \r\n")
    assert str(token) == "new"


def test_white_space_around_a_token_is_no_part_of_it() -> None:
    for given, sent in ((" abc\r", "abc"), ("abc\n", "abc"), ("\t \r\n", None)):
        assert hub_address(environment={"ROLECALL_TOKEN": given}).token == sent
        assert hub_address(token=given, environment={}).token == sent
    for unsent in ("a b", "a\nb", "t\u00f6ken", "a\x00"):
        with pytest.raises(ConfigError, match="ROLECALL_TOKEN") as refused:
            hub_address(environment={"ROLECALL_TOKEN": unsent})
        assert unsent not in str(refused.value)


def test_an_empty_token_leaves_the_file(file: Path) -> None:
    found = hub_address(environment={"ROLECALL_TOKEN": " \r\n", "ROLECALL_TOKEN_FILE": str(file)})
    assert str(found.token) == "old"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe", b"two\nlines\n", b"t\xc3\xb6ken"])
def test_a_file_without_a_token_is_an_error_at_first(file: Path, content: bytes | None) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^ROLECALL_TOKEN_FILE: .* with a token in it"):
        HubClient("http://127.0.0.1:1")


def test_a_token_is_not_shown(file: Path) -> None:
    assert "old" not in repr(TokenFile(file))


# --- a client


async def test_a_client_sends_the_new_token_from_then_on(file: Path) -> None:
    script = Locked("old")
    async with RawServer(script) as server, HubClient(server.url) as hub:
        await hub.health()
        replace(file, "newer")
        script.accepted = "newer"
        await hub.health()
    assert script.seen == ["old", "newer"]


async def test_a_refused_token_that_was_just_replaced_is_not_an_error(file: Path) -> None:
    """Also one that is as long, replaced in the same moment."""
    script = Locked("new", streamed(frame(1, TASK)))
    script.on_refusal = partial(replace_unchanged, file, "new")
    async with RawServer(script) as server, HubClient(server.url) as hub:
        assert (await hub.call("echo", "hi")).text == "hello"
    assert script.seen == ["old", "new"]


async def test_a_refused_token_is_sent_once_if_there_is_no_other(file: Path) -> None:
    script = Locked("newer")
    async with RawServer(script) as server:
        for hub in (HubClient(server.url), HubClient(server.url, "old")):
            async with hub:
                with pytest.raises(AuthError):
                    await hub.health()
        script.on_refusal = partial(replace, file, "newer")
        async with HubClient(server.url, "given") as given:
            with pytest.raises(AuthError):
                await given.health()
    assert script.seen == ["old", "old", "given"]


async def test_a_body_that_is_made_while_it_is_sent_is_not_sent_again(file: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"{}"

    script = Locked("newer")
    script.on_refusal = partial(replace, file, "newer")
    async with RawServer(script) as server:
        link = HubLink(server.url.rstrip("/"), TokenFile(file))
        refused = await link.open().post(server.url, content=pieces(), headers={"content-length": "2"})
        assert refused.status_code == 401
        await link.close()
    assert script.seen == ["old"]


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_stream_whose_token_ends_goes_on_with_the_new_one(file: Path, replaced: bool) -> None:
    tokens: list[str] = []

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        assert request is not None
        tokens.append(request.headers["authorization"])
        if len(tokens) == 1:
            if replaced:
                replace(file, "newer")
            ended = chunk(b"data: " + fault(-32000, "UNAUTHENTICATED") + b"\n\n")
            await peer.write(chunked_head() + frame(1, OPEN) + frame(2, text_update("a")) + ended + LAST_CHUNK)
            return
        assert request.headers["last-event-id"] == "2"
        await peer.write(streamed(frame(2, OPEN), frame(3, text_update("b")), frame(4, status_update("completed", final=True))))

    async with RawServer(script) as server, HubClient(server.url) as hub, fast(hub.stream("echo", "hi")) as stream:
        if replaced:
            assert [event.text async for event in stream] == ["", "a", "b", ""]
        else:
            with pytest.raises(AuthError) as caught:
                await stream.reply()
            assert caught.value.task_id == "t1"
    assert tokens == ["Bearer old", "Bearer newer"][: 1 + replaced]


# --- a worker


async def test_a_worker_beats_with_the_new_token_and_recovers_from_a_refusal(file: Path) -> None:
    granted = {"epoch": 1, "lease": "s", "ttl_seconds": 60, "heartbeat_seconds": 0.02}
    script = Locked("old", json.dumps(granted).encode())
    states: asyncio.Queue[LeaseState] = asyncio.Queue()
    async with (
        RawServer(script) as server,
        Lease(
            "echo:a",
            url="http://127.0.0.1:1/",
            hub=server.url,
            backoff=(0.01, 0.05),
            on_change=lambda state, why: states.put_nowait(state),
        ),
        asyncio.timeout(5),
    ):
        assert await states.get() is LeaseState.READY
        script.accepted = "newer"
        assert await states.get() is LeaseState.LOST
        replace(file, "newer")
        assert await states.get() is LeaseState.READY
    assert script.seen[-1] == "newer"


async def test_a_worker_beats_at_once_with_a_new_token(file: Path) -> None:
    """The old one may be revoked long before the next beat is due."""
    granted = {"epoch": 1, "lease": "s", "ttl_seconds": 600, "heartbeat_seconds": 200}
    script = Locked("old", json.dumps(granted).encode())
    async with (
        RawServer(script) as server,
        Lease("echo:a", url="http://127.0.0.1:1/", hub=server.url) as lease,
        asyncio.timeout(20),
    ):
        await lease.ready()
        script.accepted = "newer"
        replace(file, "newer")
        while script.seen[-1] != "newer":  # noqa: ASYNC110  the time is virtual
            await asyncio.sleep(0.1)
    assert script.seen == ["old", "newer", "newer"]  # enrolled, renewed, withdrawn
