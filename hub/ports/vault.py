"""The vault port: secrets that are unreadable where they are stored."""

from __future__ import annotations

from typing import Protocol


class Vault(Protocol):
    """Keeps secrets unreadable where they are stored."""

    def seal(self, secret: bytes) -> bytes: ...
    def open(self, sealed: bytes) -> bytes:
        """SecretUnreadable: sealed under another key, or changed since."""
