"""Who gets through the gate, and what is open to all."""

from __future__ import annotations

from typing import Any

import pytest

from hub.inbound.middleware.authentication import Authenticator, holder_of, is_open
from hub.inbound.middleware.request import Request
from hub.server.asgi import MAX_HEADERS
from rolecall.errors import BadHost, CrossSite, Forbidden, HeadTooLarge, Smuggled, Unauthenticated
from rolecall.model.principal import LOCAL, Kind, Principal, Right

ANNA = Principal("anna", Kind.CLIENT)


class Book:
    """Tokens that are their holders' names."""

    def __init__(self, *holders: Principal) -> None:
        self.holders = {holder.name: holder for holder in holders}

    @property
    def empty(self) -> bool:
        return not self.holders

    def find(self, token: str) -> Principal | None:
        return self.holders.get(token)


def request(path: str = "/", method: str = "POST", **headers: str) -> Request:
    async def never(*_: Any) -> Any:
        raise AssertionError("nobody reads or answers here")

    said = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "path": path, "method": method, "headers": said}, never, never)


def authenticator(*holders: Principal, **options: Any) -> Authenticator:
    return Authenticator(Book(*holders), **{"max_head": 1_000, **options})


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/agent-card.json",
        "/.well-known/agent.json",
        "/agents/echo/.well-known/agent-card.json",
        "/livez",
        "/readyz",
        "/health",
    ],
)
def test_cards_and_health_are_open_to_all(path: str) -> None:
    assert is_open(path)
    assert authenticator(ANNA).admit(request(path, "GET")) is None


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/agents",
        "/agents/echo",
        "/agents/echo/",
        "/registry/agents",
        "/registry/agents/.well-known/",
        "/registry/tasks/.well-known/decision",
        "/v1/tasks/.well-known/x",
        "/tasks/.well-known/agent-card.json",
        "/dashboard/.well-known/",
        "/agents.well-known/",
        "/x/agents/echo/.well-known/agent.json",
        "/metrics",
        "/mcp",
        "/.well-known",
    ],
)
def test_nothing_else_is_whatever_stands_in_its_path(path: str) -> None:
    assert not is_open(path)
    with pytest.raises(Unauthenticated):
        authenticator(ANNA).admit(request(path, "GET"))


@pytest.mark.parametrize("said", ["Bearer anna", "bearer anna", "BEARER anna"])
def test_a_token_opens_and_says_who_asks(said: str) -> None:
    asked = request(authorization=said)
    assert authenticator(ANNA).admit(asked) == ANNA
    assert asked.who == ANNA


@pytest.mark.parametrize("said", ["anna", "Basic anna", "Bearer", "Bearer bert", "Bearer  "])
def test_what_is_no_good_token_opens_nothing(said: str) -> None:
    with pytest.raises(Unauthenticated):
        authenticator(ANNA).admit(request(authorization=said))


def test_without_tokens_everybody_is_the_local_caller_unless_others_get_here() -> None:
    assert authenticator().admit(request()) == LOCAL
    assert Authenticator(None, max_head=1_000).admit(request()) == LOCAL
    assert (authenticator().locked, authenticator(exposed=True).locked, authenticator(ANNA).locked) == (False, True, True)
    with pytest.raises(Unauthenticated):
        authenticator(exposed=True).admit(request())


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("hub.example", True),
        ("HUB.example:8420", True),
        ("[::1]:8420", True),
        ("other.example", False),
        ("hub.example.evil", False),
        ("hub.example:", False),
        ("", False),
        ("x@hub.example", False),
    ],
)
def test_a_hub_that_knows_its_names_answers_to_no_other(host: str, fits: bool) -> None:
    admits = authenticator(hosts=["Hub.Example", "[::1]"])
    if fits:
        assert admits.admit(request(host=host)) == LOCAL
    else:
        with pytest.raises(BadHost):
            admits.admit(request(host=host))


@pytest.mark.parametrize(("method", "refused"), [("POST", True), ("DELETE", True), ("GET", False), ("HEAD", False)])
def test_another_site_may_look_and_change_nothing(method: str, refused: bool) -> None:
    if refused:
        with pytest.raises(CrossSite):
            authenticator().admit(request(method=method, sec_fetch_site="cross-site"))
    else:
        assert authenticator().admit(request(method=method, sec_fetch_site="cross-site")) == LOCAL
    for own in ("same-origin", "same-site", "none"):
        assert authenticator().admit(request(method=method, sec_fetch_site=own)) == LOCAL


def test_a_body_with_two_lengths_is_smuggled() -> None:
    with pytest.raises(Smuggled):
        authenticator().admit(request(transfer_encoding="chunked", content_length="3"))


def test_a_head_has_its_bounds() -> None:
    assert authenticator(max_head=10).admit(request(abcde="12345")) == LOCAL
    with pytest.raises(HeadTooLarge):
        authenticator(max_head=10).admit(request(abcde="123456"))
    many = {f"h{number}": "" for number in range(MAX_HEADERS)}
    assert authenticator().admit(request(**many)) == LOCAL
    with pytest.raises(HeadTooLarge):
        authenticator().admit(request(**many, more=""))


def test_who_is_known_may_do_what_its_kind_may() -> None:
    assert holder_of(ANNA, Right.CALL) is ANNA
    with pytest.raises(Forbidden):
        holder_of(ANNA, Right.OPERATE)
    with pytest.raises(Unauthenticated):
        holder_of(None, Right.READ)
