"""`rolecall tokens`: making, listing and revoking."""

from __future__ import annotations

import json
from ipaddress import ip_network
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


def test_limits_that_would_not_hold_are_refused(file: Path, capsys: Output) -> None:
    for kind in ("client", "reader", "admin"):
        for limit in (("--role", "echo"), ("--network", "10.0.0.0/8")):
            printed = refused(file, capsys, "--kind", kind, *limit)
            assert f"a {kind} token has no such limit" in printed and "--workspace" in printed


@pytest.mark.parametrize("name", ["Team A", "", "a/b", "-a", "a" * 64])
def test_a_new_workspace_has_the_form_of_a_role_and_an_old_one_any(file: Path, capsys: Output, name: str) -> None:
    assert "no name for a workspace" in refused(file, capsys, "--workspace", name)
    tokens.new(file, Principal("old", Kind.CLIENT, name), lasts=None, now=0)
    made(file, capsys, "--workspace", name)
    assert [entry.principal.workspace for entry in tokens.read(file)] == [name, name]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
def test_a_name_can_be_printed(file: Path, capsys: Output, name: str) -> None:
    assert run(["tokens", "--tokens", str(file), "new", "--name", name]) == 2
    assert "a name is printable" in capsys.readouterr().err
    assert not file.exists()


def test_tokens_are_listed_and_none_of_them_shown(file: Path, capsys: Output) -> None:
    assert run(["tokens", "--tokens", str(file), "ls"]) == 0
    assert f"no tokens in {file}" in capsys.readouterr().err
    token = made(file, capsys)
    principal = Principal("bert", Kind.WORKER, roles=("echo",), networks=(ip_network("10.0.0.0/8"),))
    tokens.new(file, principal, lasts=90, now=0)
    assert run(["tokens", "--tokens", str(file), "ls", "--json"]) == 0
    out = capsys.readouterr().out
    assert token not in out
    first, second = json.loads(out)
    assert (first["name"], first["kind"], first["roles"], first["networks"]) == ("anna", "client", [], [])
    assert (first["expires"], first["expired"]) == (None, False)
    assert (second["name"], second["roles"], second["networks"]) == ("bert", ["echo"], ["10.0.0.0/8"])
    assert (second["created"], second["expires"], second["expired"]) == (
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:01:30.000Z",
        True,
    )
    assert run(["tokens", "--tokens", str(file), "ls"]) == 0
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines()] == ["NAME", "anna", "bert"]
    assert printed.out.splitlines()[2].endswith("echo   10.0.0.0/8  1970-01-01 00:01Z, expired")
    assert printed.err == f"{file}\n"


def test_a_limit_of_before_that_does_not_hold_is_named(file: Path, capsys: Output) -> None:
    _, entry = tokens.new(file, Principal("anna", Kind.CLIENT, roles=("echo",)), lasts=None, now=0)
    assert run(["tokens", "--tokens", str(file), "ls"]) == 0
    assert f"limit workers alone: {entry.id} may use every role" in capsys.readouterr().err


# --- which tokens are meant


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ((), "all"),
        (("--workspace", "alpha"), "beta reader, default worker"),
        (("--workspace", "default", "--kind", "worker"), "alpha client, alpha client, beta reader"),
        (("--kind", "reader"), "alpha client, alpha client, default worker"),
        (("--all",), ""),
    ],
)
def test_a_name_of_several_holders_revokes_nothing_until_it_is_said_whose(
    file: Path, capsys: Output, words: tuple[str, ...], left: str
) -> None:
    for workspace, kind in (("alpha", Kind.CLIENT), ("alpha", Kind.CLIENT), ("beta", Kind.READER), ("default", Kind.WORKER)):
        tokens.new(file, Principal("anna", kind, workspace, ("echo",) if kind is Kind.WORKER else ()), lasts=None, now=0)
    before = tokens.read(file)
    code = run(["tokens", "--tokens", str(file), "revoke", "anna", *words])
    printed = capsys.readouterr().err
    kept = tokens.read(file)
    if left == "all":
        assert (code, kept) == (2, before)
        assert "--workspace" in printed and "--kind" in printed
    else:
        assert code == 0
        assert ", ".join(f"{entry.principal.workspace} {entry.principal.kind}" for entry in kept) == left
    for entry in before:
        line = f"{entry.id}, {entry.principal.kind} token of anna in workspace {entry.principal.workspace}"
        assert (line in printed) is (left == "all" or entry not in kept)
    assert (str(file) in printed) is (code == 0)


def test_a_token_is_revoked_by_its_id_whoever_has_the_same_name(file: Path, capsys: Output) -> None:
    entries = [tokens.new(file, Principal("anna", Kind.CLIENT, name), lasts=None, now=0)[1] for name in ("alpha", "beta")]
    assert run(["tokens", "--tokens", str(file), "revoke", entries[0].id]) == 0
    assert tokens.read(file) == [entries[1]]
    assert run(["tokens", "--tokens", str(file), "revoke", entries[1].id, "--workspace", "alpha"]) == 1
    assert f"no token {entries[1].id} in {file}" in capsys.readouterr().err


# --- which file is meant


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("how", ["data_dir", "tokens", "config"])
def test_the_file_is_named_before_the_subcommand_or_behind_it_and_printed(
    tmp_path: Path, capsys: Output, how: str, behind: bool
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "rolecall.toml").write_text('data_dir = "."\n')
    file = folder / tokens.FILE_NAME
    place = {
        "data_dir": ["--data-dir", str(folder)],
        "tokens": ["--tokens", str(file)],
        "config": ["--config", str(folder / "rolecall.toml")],
    }[how]
    for words in (["new", "--name", "anna"], ["ls"], ["revoke", "anna"]):
        assert run(["tokens", *words, *place] if behind else ["tokens", *place, *words]) == 0
        assert str(file) in capsys.readouterr().err
    assert tokens.read(file) == []


def test_what_is_named_behind_the_subcommand_counts(tmp_path: Path, capsys: Output) -> None:
    before, behind = tmp_path / "before", tmp_path / "behind"
    assert run(["tokens", "--tokens", str(before), "new", "--name", "anna", "--tokens", str(behind)]) == 0
    assert len(tokens.read(behind)) == 1 and not before.exists()


def test_a_file_that_the_hub_cannot_read_is_no_success(file: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "kept_from", lambda path, data_dir: "rolecall")
    for words in (["new", "--name", "anna"], ["revoke", "anna"]):
        assert run(["tokens", "--tokens", str(file), *words]) == 1
        printed = capsys.readouterr().err
        assert f"the hub runs as rolecall, which cannot read {file}" in printed and f"chown rolecall {file}" in printed
    assert tokens.read(file) == []
