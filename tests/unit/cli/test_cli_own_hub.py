"""The hub that `up` and `dev` start: its words, its environment, its address, its token."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub.identity.tokens import FILE_NAME, new, read
from rolecall.cli.output import CommandError
from rolecall.cli.server import own_hub
from rolecall.cli.server.own_hub import HOLDER, OwnHub
from rolecall.model.principal import Kind, Principal


def test_it_serves_with_the_same_sources_and_speaks_of_warnings_alone(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("drain = 5\n")
    program = OwnHub(tmp_path / "other.toml", {}).program()
    assert program.argv[-3:] == ("serve", "--config", str(tmp_path / "other.toml"))
    assert (program.env["ROLECALL_LOG_LEVEL"], program.env["ROLECALL_LOG_FORMAT"]) == ("warning", "console")
    assert (program.drain, program.final.keys()) == (20.0, {2})


def test_what_a_source_says_of_logs_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLECALL_LOG_LEVEL", "debug")
    monkeypatch.setenv("ROLECALL_LOG_FORMAT", "json")
    env = OwnHub(None, {}).program().env
    assert (env["ROLECALL_LOG_LEVEL"], env["ROLECALL_LOG_FORMAT"]) == ("debug", "json")


def test_flags_become_variables_and_win_over_those_of_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("f" * 20)
    monkeypatch.setenv("ROLECALL_ADMIN_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("ROLECALL_MAX_RATE", "5")
    program = OwnHub(None, {"admin_token": "g" * 20, "max_rate": "7", "drain": None}).program()
    assert (program.env["ROLECALL_ADMIN_TOKEN"], program.env["ROLECALL_MAX_RATE"]) == ("g" * 20, "7")
    assert "ROLECALL_ADMIN_TOKEN_FILE" not in program.env
    assert not any("g" * 20 in word for word in program.argv)


def test_any_port_is_chosen_once_so_that_a_hub_that_starts_again_is_found() -> None:
    hub = OwnHub(None, {"port": "0"})
    port = int(hub.program().env["ROLECALL_PORT"])
    assert port > 0
    assert hub.url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9"),
        ("0.0.0.0", "http://127.0.0.1:9"),
        ("::", "http://[::1]:9"),
        ("::1", "http://[::1]:9"),
    ],
)
def test_workers_here_reach_it_here_wherever_it_listens(host: str, url: str) -> None:
    assert OwnHub(None, {"host": host, "port": "9"}).url == url


def test_a_hub_that_listens_to_the_network_may_call_workers_here() -> None:
    env = OwnHub(None, {"host": "0.0.0.0", "worker_networks": "10.0.0.0/8"}).program().env
    assert env["ROLECALL_WORKER_NETWORKS"] == "10.0.0.0/8,127.0.0.0/8,::1/128"
    assert "ROLECALL_WORKER_NETWORKS" not in OwnHub(None, {}).program().env


def test_a_taken_port_is_said_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        hub = OwnHub(None, {"port": str(other.getsockname()[1])})
        with pytest.raises(CommandError, match="is taken"):
            hub.check_port()
    hub.check_port()


def test_its_token_may_enrol_any_role_and_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    new(file, Principal("anna", Kind.CLIENT), lasts=None, now=0.0)
    new(file, Principal(HOLDER, Kind.WORKER, roles=("*",)), lasts=None, now=0.0)  # of one that was killed
    hub = OwnHub(None, {"data_dir": str(tmp_path)})
    with hub.worker_token() as token:
        entries = {entry.principal.name: entry.principal for entry in read(file)}
        assert token is not None
        assert len(read(file)) == 2
        assert entries[HOLDER].kind is Kind.WORKER
        assert entries[HOLDER].may_serve("anything")
    assert [entry.principal.name for entry in read(file)] == ["anna"]


def test_a_hub_without_a_file_of_tokens_gives_the_only_one_it_knows() -> None:
    with OwnHub(None, {"store": "memory:", "admin_token": "a" * 20}).worker_token() as token:
        assert token == "a" * 20


@pytest.mark.parametrize(
    ("flags", "command"), [({"admin_token": "a" * 20}, "$ROLECALL_ADMIN_TOKEN"), ({}, "rolecall tokens new")]
)
def test_callers_are_told_how_to_get_a_token_and_never_see_one(flags: dict[str, str], command: str) -> None:
    text = OwnHub(None, flags).token_command
    assert text.startswith("export ROLECALL_TOKEN=") and command in text
    assert "a" * 20 not in text


def test_on_windows_they_are_told_as_powershell_understands_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hubs = [OwnHub(None, flags) for flags in ({"admin_token": "a" * 20}, {})]
    monkeypatch.setattr(own_hub, "sys", SimpleNamespace(platform="win32"))
    known, unknown = [hub.token_command for hub in hubs]
    assert known == "$env:ROLECALL_TOKEN = $env:ROLECALL_ADMIN_TOKEN"
    assert unknown.startswith("$env:ROLECALL_TOKEN = …") and "rolecall tokens new" in unknown
