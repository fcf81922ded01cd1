"""Secrets at rest: unreadable without the key, and never a guess."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hub.identity.vault import KEY_FILE, SealingVault, kept_key, key_from, random_key
from rolecall.errors import SecretUnreadable, StoreError


@pytest.fixture
def vault() -> SealingVault:
    return SealingVault(random_key())


@pytest.mark.parametrize("secret", [b"", b"token", b"\x00\xff" * 2048])
def test_what_is_sealed_comes_back(vault: SealingVault, secret: bytes) -> None:
    assert vault.open(vault.seal(secret)) == secret


def test_a_sealed_secret_shows_nothing_of_itself_and_looks_different_each_time(vault: SealingVault) -> None:
    first, second = vault.seal(b"a secret token"), vault.seal(b"a secret token")
    assert first != second
    assert b"secret" not in first


def test_another_key_opens_nothing(vault: SealingVault) -> None:
    with pytest.raises(SecretUnreadable):
        SealingVault(random_key()).open(vault.seal(b"token"))


def test_every_changed_byte_is_noticed(vault: SealingVault) -> None:
    sealed = vault.seal(b"token")
    for at in range(len(sealed)):
        with pytest.raises(SecretUnreadable):
            vault.open(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01" + b"x" * 11, b"\x02" + b"x" * 40, b"plain text"])
def test_what_was_never_sealed_is_unreadable(vault: SealingVault, sealed: bytes) -> None:
    with pytest.raises(SecretUnreadable):
        vault.open(sealed)


def test_the_same_text_is_the_same_key_and_another_one_is_not() -> None:
    sealed = SealingVault(key_from("x" * 32)).seal(b"token")
    assert SealingVault(key_from("x" * 32)).open(sealed) == b"token"
    with pytest.raises(SecretUnreadable):
        SealingVault(key_from("y" * 32)).open(sealed)


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = kept_key(folder)
    assert kept_key(folder) == first
    assert kept_key(tmp_path / "other") != first
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]


def test_a_start_that_died_while_it_made_the_key_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / f"{KEY_FILE}.new").write_bytes(b"half")
    assert len(kept_key(tmp_path)) == 32


@pytest.mark.parametrize("content", [b"", b"c2hvcnQ=", b"\xff\xfe"])
def test_a_damaged_key_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY_FILE).write_bytes(content)
    with pytest.raises(StoreError):
        kept_key(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == content


def test_a_folder_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"secret\.key"):
        kept_key(tmp_path / "file")
