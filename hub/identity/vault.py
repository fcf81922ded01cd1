"""Encrypts secrets before they are stored: AES-256-GCM with the hub's key. Implements ports.Vault.

`cryptography` is imported with the first secret: it takes 6 MB, and many hubs never store one.
"""

from __future__ import annotations

import base64
import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rolecall.errors import SecretUnreadable, StoreError
from rolecall.system.files import delete, private, replace, sync, sync_folder

KEY_FILE = "secret.key"
_KEY_SIZE = 32
_VERSION = b"\x01"
_NONCE_SIZE = 12


class SealingVault:
    """A random nonce: the same secret is sealed to different bytes each time."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, secret: bytes) -> bytes:
        nonce = os.urandom(_NONCE_SIZE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, _VERSION)

    def open(self, sealed: bytes) -> bytes:
        version, nonce, rest = sealed[:1], sealed[1 : 1 + _NONCE_SIZE], sealed[1 + _NONCE_SIZE :]
        if version != _VERSION or len(nonce) < _NONCE_SIZE:
            raise SecretUnreadable
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(nonce, rest, _VERSION)
        except InvalidTag:
            raise SecretUnreadable from None

    @cached_property
    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)


def key_from(text: str) -> bytes:
    """A key derived from a setting. The text must be long and random: there is no key stretching."""
    return hashlib.sha256(b"rolecall secret key\0" + text.encode()).digest()


def random_key() -> bytes:
    return os.urandom(_KEY_SIZE)


def kept_key(folder: Path) -> bytes:
    """The key in that folder, created on first use. StoreError: it exists and cannot be used, or cannot be written."""
    path = folder / KEY_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        key = base64.b64decode(path.read_bytes(), validate=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"The key {path} cannot be read or written: {_why(error)}.") from error
    if len(key) != _KEY_SIZE:
        raise StoreError(f"{path} holds no valid key. Restore the original file: stored secrets cannot be read without it.")
    return key


def _make(path: Path) -> None:
    """Written atomically, and synced to disk before anything is sealed with it."""
    temporary = path.with_name(path.name + ".new")
    delete(temporary)
    with open(temporary, "xb", buffering=0, opener=private) as file:
        file.write(base64.b64encode(random_key()) + b"\n")
        sync(file.fileno())
    replace(temporary, path)
    sync_folder(path.parent)


def _why(error: Exception) -> str:
    return error.strerror or "unknown" if isinstance(error, OSError) else "it is not Base64"
