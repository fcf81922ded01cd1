"""The request of a notification, and the result for each answer of a receiver."""

from __future__ import annotations

import asyncio
import base64
import hmac
import time
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import pytest

from hub.outbound.client import Client
from hub.outbound.webhook import HttpWebhooks, authorization, signature, signing_key
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.webhooks import WebhookRequest, WebhookResult
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from tests.helpers.raw_server import Peer, RawServer, Script, always, answer, chunk, chunked_head

GUARD = WebhookGuard(["127.0.0.1"], [], [])
NOW = 1_700_000_000.5

pytestmark = pytest.mark.virtual_time


def push_config(url: str = "https://app.example/", **members: Any) -> PushConfig:
    return PushConfig(TaskId("task"), "c", url, members.pop("dialect", "0.3"), **members)


async def post(url: str, *, secret: str | None = None, within: float = 5, body: bytes = b"{}", **members: Any) -> WebhookResult:
    async with Client(GUARD) as client:
        webhooks = HttpWebhooks(client, GUARD, lambda: NOW, secret=secret, within=within)
        return await webhooks.post(WebhookRequest("default", "task.c.7", push_config(url, **members), body))


async def result_of(script: Script, **members: Any) -> WebhookResult:
    async with RawServer(script) as server:
        return await post(server.url, **members)


# --- the request


async def test_a_notification_is_one_post_with_id_and_timestamp() -> None:
    async with RawServer(always(answer(b""))) as server:
        result = await post(server.url + "hook?a=b", body=b'{"kind":"task"}')
        (request,) = server.requests
    assert (result.status, request.line, request.body) == (200, "POST /hook?a=b HTTP/1.1", b'{"kind":"task"}')
    assert request.headers.pop("user-agent").startswith("rolecall/")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "content-length": "15",
        "accept": "*/*",
        "accept-encoding": "identity",
        "webhook-id": "task.c.7",
        "webhook-timestamp": "1700000000",
    }


@pytest.mark.parametrize(
    ("dialect", "media"), [("0.1", "application/json"), ("0.3", "application/json"), ("1.0", "application/a2a+json")]
)
async def test_each_dialect_has_its_media_type(dialect: str, media: str) -> None:
    async with RawServer(always(answer(b""))) as server:
        await post(server.url, dialect=dialect)
        assert server.requests[0].headers["content-type"] == media


@pytest.mark.parametrize(
    ("members", "bearer", "token"),
    [
        ({}, None, None),
        ({"token": "T"}, "Bearer T", "T"),
        ({"credentials": "C"}, "Bearer C", None),
        ({"schemes": ("Bearer",), "credentials": "C"}, "Bearer C", None),
        ({"schemes": ("Basic", "Bearer"), "credentials": "dTpw"}, "Basic dTpw", None),
        ({"token": "T", "schemes": ("Bearer",), "credentials": "C"}, "Bearer T", "T"),
        ({"token": "T", "schemes": ("bearer",), "credentials": "C"}, "Bearer T", "T"),
        ({"token": "T", "schemes": ("Basic",), "credentials": "dTpw"}, "Basic dTpw", "T"),
        ({"token": "T", "schemes": ("Basic",)}, "Bearer T", "T"),
        ({"schemes": ("Bearer",)}, None, None),
    ],
)
def test_token_and_credentials_are_in_the_headers_that_receivers_check(
    members: dict[str, Any], bearer: str | None, token: str | None
) -> None:
    for dialect in ("0.1", "0.3"):
        headers = dict(authorization(push_config(**members, dialect=dialect)))
        assert (headers.get("Authorization"), headers.get("X-A2A-Notification-Token")) == (bearer, token)


@pytest.mark.parametrize(
    ("members", "credentials", "token"),
    [
        ({}, None, None),
        ({"token": "T"}, None, "T"),
        ({"schemes": ("Bearer",), "credentials": "C"}, "Bearer C", None),
        ({"token": "T", "schemes": ("Bearer",), "credentials": "C"}, "Bearer C", "T"),
        ({"token": "T", "schemes": ("bearer",), "credentials": "C"}, "bearer C", "T"),
        ({"token": "T", "schemes": ("Basic",), "credentials": "dTpw"}, "Basic dTpw", "T"),
        ({"token": "T", "schemes": ("Basic",)}, None, "T"),
    ],
)
def test_for_receivers_of_1_0_the_token_is_no_credential(
    members: dict[str, Any], credentials: str | None, token: str | None
) -> None:
    headers = dict(authorization(push_config(**members, dialect="1.0")))
    assert (headers.get("Authorization"), headers.get("X-A2A-Notification-Token")) == (credentials, token)


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """Secret, id, timestamp, body and signature are those of the tests of its libraries."""
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_with_a_secret_id_timestamp_and_body_are_signed() -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    async with RawServer(always(answer(b""))) as server:
        await post(server.url, secret=secret, body=b'{"a":1}')
        (request,) = server.requests
    content = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(b"k" * 32, content, "sha256").digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"


# --- the answer


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "404 Not Found", "429 Too Many", "500 Oops"])
async def test_the_result_has_the_status(status: str) -> None:
    result = await result_of(always(answer(b"" if "204" in status else b"x", status=status)))
    assert (result.status, result.why) == (int(status[:3]), f"HTTP {status[:3]}")


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed(status: str) -> None:
    async with RawServer(always(answer(b""))) as target:
        redirect = answer(b"", status=status, more=f"Location: {target.url}\r\n")
        result = await result_of(always(redirect))
        assert result.status == int(status[:3])
        assert target.peers == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999999999999999", 999_999_999),
        ("-1", None),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        (format_datetime(parsedate_to_datetime("Tue, 14 Nov 2023 22:14:20 GMT"), usegmt=True), 59.5),
        ("²", None),
    ],
)
async def test_retry_after_is_parsed_as_seconds_or_as_a_date(text: str, seconds: float | None) -> None:
    result = await result_of(always(answer(b"", status="503 Busy", more=f"Retry-After: {text}\r\n")))
    assert result.retry_after == (None if seconds is None else timedelta(seconds=seconds))


async def slow_answer(peer: Peer) -> None:
    """Sends a head, and then endlessly a byte now and then."""
    await peer.read_request()
    await peer.write(chunked_head())
    while True:
        await peer.write(chunk(b"x"))
        await asyncio.sleep(0.05)


async def endless_answer(peer: Peer) -> None:
    await peer.read_request()
    await peer.write(chunked_head())
    while True:
        await peer.write(chunk(b"x" * 65536))


@pytest.mark.parametrize("script", [slow_answer, endless_answer])
async def test_an_endless_answer_is_cut_off_and_its_status_counts(script: Script) -> None:
    ended = asyncio.Event()
    size = 0

    async def measured(peer: Peer) -> None:
        nonlocal size
        write = peer.write

        async def counted(data: bytes) -> None:
            nonlocal size
            await write(data)
            size += len(data)

        peer.write = counted  # type: ignore[method-assign]
        try:
            await script(peer)
        except ConnectionError:
            ended.set()

    async with RawServer(measured) as server, Client(GUARD) as client:
        webhooks = HttpWebhooks(client, GUARD, lambda: NOW)
        began = time.monotonic()
        assert (await webhooks.post(WebhookRequest("default", "t.c.1", push_config(server.url), b"{}"))).status == 200
        assert time.monotonic() - began < 2
        await asyncio.wait_for(ended.wait(), 10)
    # At most what socket buffers hold, not the 10 GB that this peer would send.
    assert size < 32 * 1024 * 1024


async def silence(peer: Peer) -> None:
    await peer.read_request()
    await peer.gone()


async def incomplete_head(peer: Peer) -> None:
    await peer.read_request()
    await peer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        await peer.write(b"x")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("script", [silence, incomplete_head])
async def test_a_receiver_that_does_not_answer_in_time_is_a_failure(script: Script) -> None:
    began = time.monotonic()
    result = await result_of(script, within=0.3)
    assert (result.status, result.why) == (0, "no answer within 0.3 s")
    assert time.monotonic() - began < 3


def cut(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(data)
        peer.reset()

    return script


async def test_an_answer_cut_after_its_head_is_a_success() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")

    assert (await result_of(script)).status == 200


@pytest.mark.parametrize(
    "script",
    [
        cut(b""),
        cut(b"HTTP/1.1 200"),
        cut(b"SSH-2.0-OpenSSH_9.6\r\n"),
        cut(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
    ],
)
async def test_an_invalid_answer_is_a_failure_that_quotes_nothing(script: Callable[[Peer], Any]) -> None:
    result = await result_of(script)
    assert result.status == 0
    assert result.why
    assert "SSH" not in result.why


async def test_a_closed_port_is_a_failure() -> None:
    async with RawServer(always(answer(b""))) as server:
        url = server.url
    assert (await post(url)).why == "connection refused"


async def test_a_token_with_a_line_break_is_never_sent() -> None:
    """It is refused when it is set; this is the second check."""
    async with RawServer(always(answer(b""))) as server:
        assert (await post(server.url, token="x\r\nX-Evil: 1")).status == 0
        assert server.requests == []


async def test_connections_to_one_receiver_are_reused() -> None:
    async with RawServer(always(answer(b"ok"))) as server, Client(GUARD) as client:
        webhooks = HttpWebhooks(client, GUARD, lambda: NOW)
        for number in range(5):
            assert (await webhooks.post(WebhookRequest("a", f"t.c.{number}", push_config(server.url), b"{}"))).status == 200
        assert len(server.peers) == 1
