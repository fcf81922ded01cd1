"""What `rolecall doctor` reports about problems, against a hub that follows a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rolecall.cli import run
from rolecall.errors import NoTokens, ThroughProxy
from rolecall.protocol.faults import fault_of
from rolecall.protocol.problem import problem_body
from tests.helpers.certificates import new_authority
from tests.helpers.processes import free_port
from tests.unit.cli.scripted_hub import Response, ScriptedHub, scripted_hub

HEALTH = {"status": "ok", "version": "1", "checks": {"store": True, "taking_calls": True}, "uptime_seconds": 1.0}
CARD = {"name": "echo", "url": "http://w/", "protocolVersion": "0.3.0", "skills": [{"id": "say", "name": "Say"}]}
REFUSED = Response({"title": "Forbidden", "detail": "may not enrol", "reason": "FORBIDDEN", "status": 403}, 403)


@pytest.fixture
def healthy_hub(hub: ScriptedHub) -> ScriptedHub:
    """A healthy hub with one worker, which refuses enrolment."""
    agent: dict[str, Any] = {"name": "echo:a", "role": "echo", "instance_id": "a", "url": "http://w/", "state": "ready"}
    hub.on("GET /health", Response(HEALTH))
    hub.on("GET /registry/agents", Response({"agents": [agent], "count": 1, "next_cursor": None}))
    hub.on("GET /registry/agents/echo:a", Response({**agent, "card": CARD}))
    hub.on("POST /registry/agents/echo:a/probe", Response({"name": "echo:a", "url": "http://w/", "reachable": True}))
    return hub


def run_doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = run(["doctor", "--json", *words])
    return code, {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


@pytest.fixture(autouse=True)
def refused_enrolment(monkeypatch: pytest.MonkeyPatch, hub: ScriptedHub) -> None:
    """The doctor's worker has a random name; here it has one that the script knows."""
    monkeypatch.setattr("rolecall.cli.doctor.checks.token_hex", lambda size: "x")
    hub.on("PUT /registry/agents/rolecall-doctor/x", REFUSED)


def test_what_the_token_does_not_allow_is_skipped_with_the_reason(
    healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run_doctor(capsys)
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


def test_each_failed_check_has_its_fix_below_it(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    healthy_hub.on("POST /registry/agents/echo:a/probe", Response({"reachable": False}))
    assert run(["doctor"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    at = lines.index("FAIL  worker echo:a: the hub cannot connect to http://w/")
    assert all(line.startswith("        ") for line in lines[at + 1 : at + 4])
    assert lines[at + 4].startswith("ok    card of echo:a: A2A 0.3; skills: say")
    assert err == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "it has no name"),
        ({"url": "ftp://w/"}, "no http address"),
        ({"protocolVersion": "7.0"}, "no http address"),
        ({"skills": []}, "it names no skill"),
        ({"skills": [{"name": "Say"}]}, "a skill has no id"),
    ],
)
def test_a_card_that_clients_cannot_use_fails(
    healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str], change: dict[str, Any], text: str
) -> None:
    healthy_hub.on("GET /registry/agents/echo:a", Response({"name": "echo:a", "card": {**CARD, **change}}))
    code, found = run_doctor(capsys)
    assert code == 1
    assert text in found["card of echo:a"]["about"]
    assert found["card of echo:a"]["fix"]


def test_a_worker_without_a_card_passes(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    flat = {"name": "echo:a", "skills": [], "capabilities": {}}
    healthy_hub.on("GET /registry/agents/echo:a", Response({"name": "echo:a", "card": flat}))
    assert run_doctor(capsys)[0] == 0


def test_a_probe_needs_an_admin_token(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    healthy_hub.on("POST /registry/agents/echo:a/probe", REFUSED)
    code, found = run_doctor(capsys)
    assert (code, found["worker echo:a"]["state"], found["card of echo:a"]["state"]) == (0, "skipped", "ok")


@pytest.mark.parametrize(
    ("response", "code", "text"),
    [
        (Response("<html>hello</html>"), 3, "no hub"),
        (Response({"status": "ok"}), 3, "is not a hub"),
        (Response({**HEALTH, "status": "degraded", "checks": {"store": False}}), 3, "not healthy: store"),
        (Response({**HEALTH, "status": "degraded", "checks": {"tokens": False}}), 3, "not healthy: tokens"),
        (Response({}, 404), 3, "404"),
    ],
)
def test_a_server_that_is_not_a_healthy_hub_ends_the_checks(
    hub: ScriptedHub, capsys: pytest.CaptureFixture[str], response: Response, code: int, text: str
) -> None:
    hub.on("GET /health", response)
    ended, found = run_doctor(capsys)
    assert ended == code
    assert list(found) == ["settings", "hub"]
    assert text in found["hub"]["about"]


def test_a_check_that_the_hub_fails_has_its_own_advice(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    for checks, hints in (
        ({"tokens": False, "audit": False}, ["tokens_unreadable", "audit_failed"]),
        ({"x": False}, ["see its log"]),
    ):
        hub.on("GET /health", Response({**HEALTH, "status": "degraded", "checks": {"store": True, **checks}}))
        lines = run_doctor(capsys)[1]["hub"]["fix"].splitlines()
        assert len(lines) == len(hints) and all(word in line for word, line in zip(hints, lines, strict=True))


def test_a_full_disk_is_told_as_that(hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    disk = {"used": 1, "limit": 100 * 1024**3, "free": 48_000_000, "reserve": 256_000_000}
    hub.on("GET /health", Response({**HEALTH, "status": "degraded", "checks": {"store": True, "disk": False}, "disk": disk}))
    code, found = run_doctor(capsys)
    assert (code, found["hub"]["state"]) == (3, "fail")
    assert found["hub"]["about"].endswith("not healthy: disk (48 MB free on its disk, of which it keeps 256 MB)")
    assert "make room there" in found["hub"]["fix"]


def test_an_unreachable_hub_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run_doctor(capsys, "--hub", f"http://127.0.0.1:{free_port()}")
    assert (code, found["hub"]["state"]) == (3, "fail")


def test_a_hub_whose_certificate_is_not_accepted_exits_with_3_and_names_the_fix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with scripted_hub(tls=new_authority(tmp_path).certificate().server_context()) as hub:
        code, found = run_doctor(capsys, "--hub", hub.url)
    assert (code, list(found), found["hub"]["state"]) == (3, ["settings", "hub"], "fail")
    assert found["hub"]["about"] == f"The certificate of {hub.url} is signed by an authority that is not trusted here."
    assert found["hub"]["fix"].startswith("Set ROLECALL_CA_FILE to a PEM file ")


def test_every_check_trusts_the_authority_of_the_hub(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = new_authority(tmp_path)
    monkeypatch.setenv("ROLECALL_CA_FILE", str(authority.file))
    with scripted_hub(tls=authority.certificate().server_context()) as hub:
        hub.on("GET /health", Response(HEALTH))
        hub.on("GET /registry/agents", Response({"agents": [], "count": 0, "next_cursor": None}))
        hub.on("PUT /registry/agents/rolecall-doctor/x", REFUSED)
        code, found = run_doctor(capsys, "--hub", hub.url)
    assert (code, found["hub"]["state"], found["token"]["state"]) == (0, "ok", "ok")
    assert found["round trip"]["about"] == "may not enrol"


def test_a_file_of_authorities_that_is_missing_exits_with_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROLECALL_CA_FILE", str(tmp_path / "absent"))
    code, found = run_doctor(capsys, "--hub", "https://127.0.0.1:9")
    assert (code, list(found)) == (2, ["settings", "connection"])
    assert found["connection"]["about"].startswith(f"ca_file: {tmp_path / 'absent'} cannot be read")


def test_wrong_settings_exit_with_2_and_the_rest_is_checked(
    healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "rolecall.toml").write_text("prot = 1\n")
    code, found = run_doctor(capsys)
    assert (code, found["settings"]["state"], found["token"]["state"]) == (2, "fail", "ok")
    assert "prot" in found["settings"]["about"]


def test_without_the_hub_its_settings_are_skipped_and_the_rest_is_checked(
    healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rolecall.toml").write_text("prot = 1\n")
    monkeypatch.setitem(sys.modules, "quart", None)
    assert run(["doctor"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "skip  settings: only a hub has them, and none is installed here (pip install 'rolecall[hub]')"
    assert rest[0].startswith("ok    hub: ")
    assert rest[1].startswith("ok    token: ")


def test_an_unknown_token_exits_with_4(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    healthy_hub.on("GET /registry/agents", Response({"detail": "A token is needed", "reason": "UNAUTHENTICATED"}, 401))
    code, found = run_doctor(capsys, "--token", "rc_old")
    assert (code, found["token"]["about"]) == (4, "the hub does not know this token")
    assert list(found) == ["settings", "hub", "token"]


def test_a_hub_that_has_lost_its_tokens_is_reported(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    healthy_hub.on("GET /registry/agents", Response(json.loads(problem_body(fault_of(NoTokens()))), 401))
    code, found = run_doctor(capsys, "--token", "rc_old")
    assert (code, found["token"]["about"]) == (4, NoTokens().message)
    assert "rolecall tokens new --name me --kind admin" in found["token"]["fix"]
    assert list(found) == ["settings", "hub", "token"]


def test_a_proxy_before_a_hub_without_tokens_is_reported(healthy_hub: ScriptedHub, capsys: pytest.CaptureFixture[str]) -> None:
    healthy_hub.on("GET /health", Response(json.loads(problem_body(fault_of(ThroughProxy()))), 403))
    code, found = run_doctor(capsys)
    assert (code, found["hub"]["about"]) == (4, ThroughProxy().message)
    assert "rolecall tokens new --name me --kind admin" in found["hub"]["fix"]
