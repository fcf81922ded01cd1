"""What `rolecall doctor` says where something is wrong, against a hub that follows a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli import run
from tests.helpers.processes import free_port
from tests.unit.cli.scripted_hub import ScriptedHub, Told

HEALTH = {"status": "ok", "version": "1", "checks": {"store": True, "taking_calls": True}, "uptime_seconds": 1.0}
CARD = {"name": "echo", "url": "http://w/", "protocolVersion": "0.3.0", "skills": [{"id": "say", "name": "Say"}]}
REFUSED = Told({"title": "Forbidden", "detail": "may not enrol", "reason": "FORBIDDEN", "status": 403}, 403)


@pytest.fixture
def well(hub: ScriptedHub) -> ScriptedHub:
    """A hub with one worker, where nobody may enrol."""
    agent: dict[str, Any] = {"name": "echo:a", "role": "echo", "instance_id": "a", "url": "http://w/", "state": "ready"}
    hub.on("GET /health", Told(HEALTH))
    hub.on("GET /registry/agents", Told({"agents": [agent], "count": 1, "next_cursor": None}))
    hub.on("GET /registry/agents/echo:a", Told({**agent, "card": CARD}))
    hub.on("POST /registry/agents/echo:a/probe", Told({"name": "echo:a", "url": "http://w/", "reachable": True}))
    return hub


def examined(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["doctor", "--json", *words])
    return code, {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


@pytest.fixture(autouse=True)
def nobody_enrols(monkeypatch: pytest.MonkeyPatch, hub: ScriptedHub) -> None:
    """The doctor's role has another name each time; here it has one that the script knows."""
    monkeypatch.setattr("rolecall.cli.server.checks.token_hex", lambda size: "x")
    hub.on("PUT /registry/agents/doctor-x/one", REFUSED)


def test_what_may_not_be_done_is_skipped_with_the_reason(well: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examined(capsys)
    assert code == 0
    assert [name for name, check in found.items() if check["state"] == "ok"] == [
        "settings",
        "hub",
        "token",
        "worker echo:a",
        "card of echo:a",
    ]
    assert (found["round trip"]["state"], found["round trip"]["about"]) == ("skipped", "may not enrol")
    assert found["stream"]["state"] == "skipped"


def test_each_line_is_for_people_and_each_red_one_has_its_fix(well: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    well.on("POST /registry/agents/echo:a/probe", Told({"reachable": False}))
    assert run(["doctor"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    at = lines.index("FAIL  worker echo:a: the hub cannot connect to http://w/")
    assert all(line.startswith("        ") for line in lines[at + 1 : at + 4])
    assert lines[at + 4].startswith("ok    card of echo:a: A2A 0.3; skills: say")
    assert err == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "it has no name"),
        ({"url": "ftp://w/"}, "no http address"),
        ({"protocolVersion": "7.0"}, "no http address"),
        ({"skills": []}, "it names no skill"),
        ({"skills": [{"name": "Say"}]}, "a skill has no id"),
    ],
)
def test_a_card_that_clients_cannot_use_is_red(
    well: ScriptedHub, capsys: pytest.CaptureFixture[str], change: dict[str, Any], said: str
) -> None:
    well.on("GET /registry/agents/echo:a", Told({"name": "echo:a", "card": {**CARD, **change}}))
    code, found = examined(capsys)
    assert code == 1
    assert said in found["card of echo:a"]["about"]
    assert found["card of echo:a"]["fix"]


def test_a_worker_without_a_card_is_no_fault(well: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    flat = {"name": "echo:a", "skills": [], "capabilities": {}}
    well.on("GET /registry/agents/echo:a", Told({"name": "echo:a", "card": flat}))
    assert examined(capsys)[0] == 0


def test_only_an_admin_has_the_hub_connect(well: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    well.on("POST /registry/agents/echo:a/probe", REFUSED)
    code, found = examined(capsys)
    assert (code, found["worker echo:a"]["state"], found["card of echo:a"]["state"]) == (0, "skipped", "ok")


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        (Told("<html>hello</html>"), 3, "no hub"),
        (Told({"status": "ok"}), 3, "is no hub"),
        (Told({**HEALTH, "status": "degraded", "checks": {"store": False}}), 3, "not well: store"),
        (Told({}, 404), 3, "404"),
    ],
)
def test_what_is_no_hub_or_not_well_ends_it(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], told: Told, code: int, said: str
) -> None:
    hub.on("GET /health", told)
    ended, found = examined(capsys)
    assert ended == code
    assert list(found) == ["settings", "hub"]
    assert said in found["hub"]["about"]


def test_a_hub_that_is_not_there_is_three(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = examined(capsys, "--hub", f"http://127.0.0.1:{free_port()}")
    assert (code, found["hub"]["state"]) == (3, "fail")


def test_settings_that_cannot_be_read_are_two_and_the_rest_is_checked(
    well: ScriptedHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "rolecall.toml").write_text("prot = 1\n")
    code, found = examined(capsys)
    assert (code, found["settings"]["state"], found["token"]["state"]) == (2, "fail", "ok")
    assert "prot" in found["settings"]["about"]


def test_a_token_that_is_not_known_is_four(well: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    well.on("GET /registry/agents", Told({"detail": "A token is needed", "reason": "UNAUTHENTICATED"}, 401))
    code, found = examined(capsys, "--token", "rc_old")
    assert (code, found["token"]["about"]) == (4, "the hub does not know this token")
    assert list(found) == ["settings", "hub", "token"]
