"""Which hub workers enrol at, and why a hub is not used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolecall.cli.console.hub_choice import ChosenHub, choose_hub
from rolecall.cli.output import CommandError
from tests.helpers.processes import free_port
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk.errors import AuthError, HubUnreachable

HEALTH = {"status": "ok", "uptime_seconds": 1.0, "checks": {"taking_calls": True}}
HOLDER = {"name": "farm", "kind": "worker", "workspace": "default", "rights": ["read", "enrol"]}


@pytest.fixture
def running(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> ScriptedHub:
    """A hub at the address where this machine's hub would start."""
    monkeypatch.delenv("ROLECALL_HUB")
    monkeypatch.setenv("ROLECALL_PORT", hub.url.rpartition(":")[2])
    hub.on("GET /health", Response(HEALTH))
    hub.on("GET /registry/me", Response(HOLDER))
    return hub


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Where this machine's hub would start, and nothing is."""
    port = free_port()
    monkeypatch.setenv("ROLECALL_PORT", str(port))
    return port


async def refused(given: str | None = None, token: str | None = None) -> CommandError:
    with pytest.raises(CommandError) as error:
        await choose_hub(given, token, None)
    return error.value


async def test_where_nothing_listens_a_hub_is_started(port: int) -> None:
    chosen = await choose_hub(None, None, None)
    assert chosen.own is not None
    assert chosen.address.url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("env", "given", "calls_with"),
    [
        ({}, None, None),
        ({}, "mine", "mine"),
        ({"ROLECALL_TOKEN": "mine"}, None, "mine"),
        ({"ROLECALL_ADMIN_TOKEN": "a" * 32}, None, "a" * 32),
        ({"ROLECALL_TOKEN": "mine", "ROLECALL_ADMIN_TOKEN": "a" * 32}, None, "mine"),
    ],
)
async def test_people_have_another_token_than_the_workers_of_a_hub_that_is_started(
    port: int, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], given: str | None, calls_with: str | None
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    chosen = await choose_hub(None, given, None)
    assert (chosen.address.token, chosen.caller_address.token) == (None, calls_with)


async def test_another_name_of_the_same_address_is_the_same_hub(port: int) -> None:
    for given in (f"http://localhost:{port}", f"http://127.0.0.1:{port}/"):
        assert (await choose_hub(given, None, None)).own is not None


async def test_a_hub_elsewhere_must_run(port: int) -> None:
    with pytest.raises(HubUnreachable):
        await choose_hub(f"http://127.0.0.1:{free_port()}", None, None)


async def test_a_hub_that_runs_is_used_with_the_token_that_is_given(running: ScriptedHub) -> None:
    chosen = await choose_hub(None, "secret", None)
    assert (chosen.own, chosen.address.url) == (None, running.url)
    assert chosen.variables == {"ROLECALL_HUB": running.url, "ROLECALL_TOKEN": "secret"}
    assert running.requests[-1].headers["authorization"] == "Bearer secret"


async def test_a_token_in_a_file_is_passed_on_as_a_file(
    running: ScriptedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("ROLECALL_TOKEN_FILE", "token")
    chosen = await choose_hub(None, None, None)
    assert chosen.variables == {"ROLECALL_HUB": running.url, "ROLECALL_TOKEN_FILE": str(tmp_path / "token")}
    assert (await choose_hub(None, "other", None)).variables["ROLECALL_TOKEN"] == "other"


@pytest.mark.parametrize(
    ("body", "status"), [({"hello": "world"}, 200), ({"status": "ok"}, 200), ("text", 200), ({"title": "no"}, 404)]
)
async def test_what_is_no_hub_has_the_port(
    running: ScriptedHub, body: object, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.on("GET /health", Response(body, status))
    error = await refused()
    assert (error.reason, error.code) == ("PORT_TAKEN", 2)
    monkeypatch.setenv("ROLECALL_PORT", str(free_port()))
    with pytest.raises((CommandError, HubUnreachable), match=r"is not a hub|is no hub"):
        await choose_hub(running.url, None, None)


STOPPING = Response({**HEALTH, "checks": {"taking_calls": False}})


async def test_a_hub_that_stops_is_not_used(running: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    running.on("GET /health", STOPPING)
    monkeypatch.setattr("rolecall.cli.console.hub_choice._ENDING_PATIENCE", 0.0)
    assert (await refused()).reason == "HUB_DRAINING"


async def test_one_that_stops_where_a_hub_is_to_start_is_waited_for(running: ScriptedHub) -> None:
    running.on("GET /health", STOPPING, STOPPING, Response(HEALTH))
    assert (await choose_hub(None, None, None)).address.url == running.url
    assert running.calls().count("GET /health") == 3
    running.on("GET /health", STOPPING)
    port = free_port()  # where this machine's hub would start: not there
    with pytest.MonkeyPatch.context() as patch, pytest.raises(CommandError, match="is stopping"):
        patch.setenv("ROLECALL_PORT", str(port))
        async with asyncio.timeout(5):
            await choose_hub(running.url, None, None)


async def test_a_token_that_may_not_enrol_is_named_by_its_holder(running: ScriptedHub) -> None:
    running.on("GET /registry/me", Response({"name": "anna", "kind": "client", "rights": ["read", "call"]}))
    error = await refused()
    assert (error.code, error.message) == (4, "the token of anna is of kind client, and may not enrol workers")


async def test_a_hub_that_wants_a_token_says_so(running: ScriptedHub) -> None:
    running.on("GET /registry/me", Response({"detail": "a token is needed"}, 401))
    with pytest.raises(AuthError, match="a token is needed"):
        await choose_hub(None, None, None)


async def test_without_the_packages_of_a_hub_one_must_run(running: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rolecall.cli.console.hub_choice.missing_packages", lambda: ["quart"])
    assert (await choose_hub(running.url, None, None)).address.url == running.url
    monkeypatch.setenv("ROLECALL_PORT", str(free_port()))
    error = await refused()
    assert (error.reason, error.code, "pip install 'rolecall[hub]'" in error.hint) == ("NOT_INSTALLED", 2, True)


async def test_the_token_of_a_running_hub_is_nobody_elses_matter(running: ScriptedHub) -> None:
    chosen = ChosenHub((await choose_hub(None, "secret", None)).address)
    async with chosen.with_worker_token() as same:
        assert same is chosen
