"""Which pages may use the hub from a browser."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from hub.inbound.middleware.authentication import Authenticator
from hub.inbound.middleware.origins import Origins, answer_preflight, is_preflight
from hub.inbound.middleware.request import Request
from rolecall.errors import CrossSite, Unauthenticated
from tests.unit.inbound.test_auth import CLIENT, LOCAL_ADDRESS, TokenTable

LISTED = ("https://app.example.com", "http://localhost:5173", "chrome-extension://abcdef")
PUBLIC = "https://hub.example.com/below"


ASKS = ("access-control-request-method", "POST")


def request(*headers: tuple[str, str], method: str = "POST", scheme: str = "http", path: str = "/") -> Request:
    async def never(*_: object) -> object:
        raise AssertionError("this request must be neither read nor answered")

    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    where = {"client": LOCAL_ADDRESS, "server": LOCAL_ADDRESS, "scheme": scheme}
    return Request({"type": "http", "path": path, "method": method, "headers": pairs, **where}, never, never)


def admitted(*headers: tuple[str, str], method: str = "POST", scheme: str = "http") -> Request:
    """CrossSite."""
    sent = request(*headers, method=method, scheme=scheme)
    Authenticator(None, origins=Origins(LISTED, PUBLIC), max_head=4_000).admit(sent)
    return sent


@pytest.mark.parametrize(
    ("origin", "host", "scheme"),
    [
        ("http://localhost:8420", "localhost:8420", "http"),
        ("http://LOCALHOST:8420", "localhost:8420", "http"),
        ("http://localhost:8420", "LocalHost:8420", "http"),
        ("http://localhost", "localhost", "http"),
        ("http://localhost", "localhost:80", "http"),
        ("http://localhost:80", "localhost", "http"),
        ("https://hub.internal", "hub.internal", "https"),
        ("https://hub.internal", "hub.internal:443", "https"),
        ("http://127.0.0.1:8420", "127.0.0.1:8420", "http"),
        ("http://[::1]:8420", "[::1]:8420", "http"),
        ("http://[::1]:8420", "[0:0:0:0:0:0:0:1]:8420", "http"),
        ("http://localhost.:8420", "localhost.:8420", "http"),
        ("https://hub.example.com", "127.0.0.1:8420", "http"),
        ("https://hub.example.com:443", "hub.example.com", "http"),
    ],
)
def test_pages_of_the_hubs_own_address_or_public_url_may_change_something(origin: str, host: str, scheme: str) -> None:
    assert admitted(("host", host), ("origin", origin), scheme=scheme).cors == ()


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", "localhost:8420"),
        ("", "localhost:8420"),
        ("http://localhost:3000", "localhost:8420"),
        ("http://localhost", "localhost:8420"),
        ("http://127.0.0.1:8420", "localhost:8420"),
        ("http://localhost.:8420", "localhost:8420"),
        ("http://localhost:8420", "localhost.:8420"),
        ("http://localhost:84200", "localhost:8420"),
        ("http://localhost:8420.evil.example", "localhost:8420"),
        ("http://evil.example/localhost:8420", "localhost:8420"),
        ("http://evil.example@localhost:8420", "localhost:8420"),
        ("http://localhost:8420 http://evil.example", "localhost:8420"),
        ("https://localhost", "localhost"),
        ("ftp://localhost:8420", "localhost:8420"),
        ("file://localhost:8420", "localhost:8420"),
        ("http://hub.example.com", "127.0.0.1:8420"),
        ("https://hub.example.com:8443", "127.0.0.1:8420"),
        ("https://hub.example.com.", "127.0.0.1:8420"),
        ("https://app.example.com:8443", "127.0.0.1:8420"),
        ("http://app.example.com", "127.0.0.1:8420"),
        ("https://app.example.com.evil.example", "127.0.0.1:8420"),
        ("https://evil.app.example.com", "127.0.0.1:8420"),
        ("http://[::1]:3000", "[::1]:8420"),
        ("chrome-extension://other", "127.0.0.1:8420"),
    ],
)
def test_pages_of_any_other_origin_may_change_nothing(origin: str, host: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "ANY"):
        for site in ((), (("sec-fetch-site", "same-origin"),)):
            with pytest.raises(CrossSite, match="ROLECALL_ALLOWED_ORIGINS") as refused:
                admitted(("host", host), ("origin", origin), *site, method=method)
            assert "origin" in refused.value.message
    for method in ("GET", "HEAD", "OPTIONS"):
        assert admitted(("host", host), ("origin", origin), method=method).cors == ()
    with pytest.raises(CrossSite):
        admitted(("host", host), ("origin", origin), ASKS, method="OPTIONS")


def test_a_page_of_any_origin_may_ask_to_read_cards() -> None:
    for path in ("/.well-known/agent-card.json", "/agents/echo/.well-known/agent.json", "/.well-known/ai-catalog.json"):
        asked = request(("host", "h"), ("origin", "http://evil.example"), ASKS, method="OPTIONS", path=path)
        Origins(LISTED).admit(asked)
        assert asked.cors == ()


def test_the_log_names_each_refused_origin_once(caplog: pytest.LogCaptureFixture) -> None:
    origins = Origins(LISTED)
    for origin in ("http://localhost:5173", "http://a.example:80", "http://a.example", "null", "https://b.example:8443"):
        for method in ("OPTIONS", "POST", "GET"):
            with suppress(CrossSite):
                origins.admit(request(("host", "h"), ("origin", origin), ASKS, method=method))
    named = [record.__dict__["origin"] for record in caplog.records if record.levelname == "WARNING"]
    assert named == ["http://a.example", "https://b.example:8443"]
    assert "ROLECALL_ALLOWED_ORIGINS" in caplog.records[0].__dict__["why"]
    for number in range(1000):
        with pytest.raises(CrossSite):
            origins.admit(request(("host", "h"), ("origin", f"http://{number}.example")))
    assert len(caplog.records) == 100


async def test_a_page_may_send_and_read_the_headers_that_clients_use() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asked = request(("host", "h"), ("origin", LISTED[0]), ASKS, method="OPTIONS")
    Origins(LISTED).admit(asked)
    asked.send = send
    await answer_preflight(asked)
    head = {name: {word.strip().lower() for word in value.split(b",")} for name, value in sent[0]["headers"]}
    assert {b"want-a2a-task", b"last-event-id", b"idempotency-key"} <= head[b"access-control-allow-headers"]
    assert {b"a2a-task", b"repr-digest", b"etag", b"retry-after"} <= head[b"access-control-expose-headers"]


@pytest.mark.parametrize("second", ["http://evil.example", "http://localhost:8420", "https://app.example.com"])
@pytest.mark.parametrize("first", ["http://localhost:8420", "https://app.example.com"])
def test_of_two_origins_none_counts(first: str, second: str) -> None:
    both = (("host", "localhost:8420"), ("origin", first), ("origin", second))
    with pytest.raises(CrossSite):
        admitted(*both)
    assert admitted(*both, method="GET").cors == ()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("origin", [*LISTED, "HTTPS://app.example.com:443"])
def test_a_listed_origin_may_and_can_read_the_answer(origin: str, method: str) -> None:
    """Whatever the browser says of its site."""
    sent = admitted(("host", "h"), ("origin", origin), ("sec-fetch-site", "cross-site"), method=method)
    named = dict(sent.cors)
    assert (named[b"access-control-allow-origin"], named[b"vary"]) == (origin.encode(), b"Origin")
    assert b"access-control-allow-credentials" not in named


@pytest.mark.parametrize(
    ("site", "refused"), [("cross-site", True), ("same-site", True), ("same-origin", False), ("none", False)]
)
def test_without_an_origin_the_site_that_the_browser_names_decides(site: str, refused: bool) -> None:
    """Another port of this machine is the same site."""
    assert admitted(("sec-fetch-site", site), method="GET").cors == ()
    if refused:
        with pytest.raises(CrossSite):
            admitted(("sec-fetch-site", site))
    else:
        assert admitted(("sec-fetch-site", site)).cors == ()


def test_only_preflights_of_listed_origins_need_no_token() -> None:
    locked = Authenticator(TokenTable(CLIENT), origins=Origins(LISTED), max_head=1_000)
    preflight = request(("origin", LISTED[0]), ASKS, method="OPTIONS")
    assert locked.admit(preflight) is None
    assert is_preflight(preflight)
    for other in (
        request(("origin", LISTED[0]), method="OPTIONS"),
        request(("origin", LISTED[0]), ASKS, method="POST"),
        request(ASKS, method="OPTIONS"),
    ):
        with pytest.raises(Unauthenticated):
            locked.admit(other)
