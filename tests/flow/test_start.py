"""Which hubs start, by whether others can reach them and whether they have tokens."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from hub.app import create_app, needs_tokens
from hub.identity.tokens import FILE_NAME, new, revoke
from hub.run import check
from hub.settings.model import Settings
from rolecall.errors import ConfigError
from rolecall.model.principal import Kind, Principal

HERE, EVERYWHERE, PUBLIC = "127.0.0.1", "0.0.0.0", "https://agents.example.com"
OWN, OTHER = 8420, None
"""The port of the hub's own server; of another one it knows none."""


class Case(NamedTuple):
    host: str | None
    public_url: str | None
    port: int | None
    exposed_by: str
    """The start of the sentence that says why the hub does not start without tokens; empty: it does."""


CASES = [
    Case(None, None, OWN, ""),
    Case(HERE, None, OWN, ""),
    Case("localhost", "http://localhost:8420", OWN, ""),
    Case("::1", "http://[::1]:9", OWN, ""),
    Case(HERE, "http://127.8.8.8/hub", OWN, ""),
    Case(HERE, None, OTHER, ""),
    Case(HERE, "http://localhost:8420", OTHER, ""),
    Case(None, None, OTHER, "the hub cannot know which address another server listens on"),
    Case(None, "http://localhost:8420", OTHER, "the hub cannot know which address another server listens on"),
    Case(EVERYWHERE, None, OWN, "host 0.0.0.0 lets other machines call the hub"),
    Case("::", None, OTHER, "host :: lets other machines call the hub"),
    Case("hub.example", "http://localhost:8420", OWN, "host hub.example lets other machines call the hub"),
    Case(None, PUBLIC, OWN, f"public_url says that others call the hub at {PUBLIC}"),
    Case(HERE, PUBLIC, OWN, f"public_url says that others call the hub at {PUBLIC}"),
    Case(HERE, PUBLIC, OTHER, f"public_url says that others call the hub at {PUBLIC}"),
    Case(HERE, "http://localhost.example.com", OWN, "public_url says that others"),
    Case(HERE, "http://127.0.0.1.example.com", OWN, "public_url says that others"),
    Case(HERE, "http://192.168.0.9:8420", OWN, "public_url says that others"),
]


@pytest.mark.parametrize("case", CASES)
def test_without_tokens_a_hub_that_others_can_reach_does_not_start(tmp_path: Path, case: Case) -> None:
    settings = _settings(tmp_path, case)
    if not case.exposed_by:
        assert create_app(settings, port=case.port) is not None
        assert not needs_tokens(settings)
        assert list(tmp_path.iterdir()) == []
        return
    with pytest.raises(ConfigError) as refused:
        create_app(settings, port=case.port)
    assert refused.value.message.startswith(case.exposed_by)
    assert "there are no tokens. Make one: rolecall tokens new --kind admin --name me, or set ROLECALL_ADMIN_TOKEN" in str(
        refused.value
    )


@pytest.mark.parametrize("case", CASES)
def test_with_a_token_every_hub_starts(tmp_path: Path, case: Case) -> None:
    new(tmp_path / FILE_NAME, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    assert create_app(_settings(tmp_path, case), port=case.port) is not None


@pytest.mark.parametrize("case", CASES)
def test_a_hub_that_others_can_reach_does_not_start_after_it_has_lost_its_tokens(tmp_path: Path, case: Case) -> None:
    new(tmp_path / FILE_NAME, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    revoke(tmp_path / FILE_NAME, "me")
    assert needs_tokens(_settings(tmp_path, case))
    if case.exposed_by:
        with pytest.raises(ConfigError):
            create_app(_settings(tmp_path, case), port=case.port)
    else:
        assert create_app(_settings(tmp_path, case), port=case.port) is not None


def test_a_check_of_the_settings_changes_nothing(tmp_path: Path) -> None:
    new(tmp_path / FILE_NAME, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    before = sorted(tmp_path.iterdir())
    check(Settings.of(data_dir=tmp_path, audit_log=tmp_path / "audit.log", host=EVERYWHERE))
    assert sorted(tmp_path.iterdir()) == before


def _settings(folder: Path, case: Case) -> Settings:
    chosen = {"host": case.host, "public_url": case.public_url}
    return Settings.of(data_dir=folder, **{name: value for name, value in chosen.items() if value is not None})
