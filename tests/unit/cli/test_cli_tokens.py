"""`rolecall tokens`: making, listing and revoking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hub.identity import tokens
from rolecall.cli import run
from rolecall.model.principal import Kind, Principal

Output = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def made(file: Path, output: Output, *options: str, name: str = "anna") -> str:
    assert run(["tokens", "--tokens", str(file), "new", "--name", name, *options]) == 0
    return output.readouterr().out.strip()


def refused(file: Path, output: Output, *options: str) -> str:
    assert run(["tokens", "--tokens", str(file), "new", "--name", "w", *options]) == 2
    assert not file.exists()
    return output.readouterr().err


@pytest.mark.parametrize(("days", "seconds"), [("1", 86_400), ("30", 30 * 86_400), ("0.5", 43_200)])
def test_a_token_is_valid_for_so_many_days(file: Path, capsys: Output, days: str, seconds: float) -> None:
    made(file, capsys, "--days", days)
    (entry,) = tokens.read(file)
    assert entry.expires is not None
    assert entry.expires - entry.created == pytest.approx(seconds, abs=0.001)


def test_a_token_is_valid_until_it_is_revoked(file: Path, capsys: Output) -> None:
    token = made(file, capsys)
    (entry,) = tokens.read(file)
    assert (entry.expires, entry.digest) == (None, tokens.digest_of(token))
    assert entry.principal == Principal("anna", Kind.CLIENT)
    assert run(["tokens", "--tokens", str(file), "revoke", "anna"]) == 0
    text = capsys.readouterr().err
    assert entry.id in text
    assert "it was the last one: the hub refuses every caller" in text
    assert tokens.read(file) == []
    assert run(["tokens", "--tokens", str(file), "revoke", "anna"]) == 1
    assert "no token anna" in capsys.readouterr().err


def test_only_of_the_last_token_it_is_said_that_it_was(file: Path, capsys: Output) -> None:
    made(file, capsys)
    made(file, capsys)
    first, _ = tokens.read(file)
    assert run(["tokens", "--tokens", str(file), "revoke", first.id]) == 0
    assert "the last one" not in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-1", "soon"])
def test_a_token_that_is_never_valid_is_refused(file: Path, capsys: Output, days: str) -> None:
    assert "--days" in refused(file, capsys, "--days", days)


def test_a_worker_names_its_roles_and_networks(file: Path, capsys: Output) -> None:
    made(file, capsys, "--kind", "worker", "--workspace", "acme", "--role", "code-*", "--role", "*", "--network", "10.0.0.0/8")
    holder = tokens.read(file)[0].principal
    assert (holder.kind, holder.workspace, holder.roles) == (Kind.WORKER, "acme", ("code-*", "*"))
    assert [str(network) for network in holder.networks] == ["10.0.0.0/8"]


def test_wrong_roles_and_networks_are_refused(file: Path, capsys: Output) -> None:
    assert "needs roles" in refused(file, capsys, "--kind", "worker")
    assert "No Role is not a role" in refused(file, capsys, "--kind", "worker", "--role", "No Role")
    assert "10.0.0.0/8" in refused(file, capsys, "--kind", "worker", "--role", "echo", "--network", "10.0.0.1/8")


def test_tokens_are_listed_and_none_of_them_shown(file: Path, capsys: Output) -> None:
    assert run(["tokens", "--tokens", str(file), "ls"]) == 0
    assert "no tokens" in capsys.readouterr().err
    token = made(file, capsys)
    principal = Principal("bert", Kind.WORKER, roles=("echo",))
    tokens.new(file, principal, lasts=90, now=0)
    assert run(["tokens", "--tokens", str(file), "ls", "--json"]) == 0
    out = capsys.readouterr().out
    assert token not in out
    first, second = json.loads(out)
    assert (first["name"], first["kind"], first["roles"], first["expires"]) == ("anna", "client", "-", "never")
    assert (second["name"], second["roles"], second["expires"]) == ("bert", "echo", "1970-01-01 00:01Z")
    assert run(["tokens", "--tokens", str(file), "ls"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["NAME", "anna", "bert"]
