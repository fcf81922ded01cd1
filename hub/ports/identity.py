"""The ports of identity: the principals of tokens, and secrets that are unreadable in the store."""

from __future__ import annotations

from typing import Protocol

from rolecall.model.principal import Principal


class Tokens(Protocol):
    """Finds the principal of a token. Plain calls, cheap enough for every request."""

    @property
    def empty(self) -> bool:
        """There are no tokens."""

    @property
    def required(self) -> bool:
        """Every caller needs a token: there are some, or there have been."""

    def is_valid(self, token_id: str) -> bool:
        """Whether the token with that public id is neither revoked nor expired. True where that cannot be known now."""

    def find(self, token: str) -> Principal | None:
        """None: unknown, revoked, expired. Takes the same time in each case."""


class Vault(Protocol):
    """Keeps secrets unreadable in the store."""

    def seal(self, secret: bytes) -> bytes: ...
    def open(self, sealed: bytes) -> bytes:
        """SecretUnreadable: sealed under another key, or changed since."""
