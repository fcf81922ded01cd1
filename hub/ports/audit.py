"""The port of the audit log, as far as others than its own logger have to do with it."""

from __future__ import annotations

from typing import Protocol


class AuditLog(Protocol):
    @property
    def failure(self) -> str:
        """Why the last entry could not be written; empty: it was."""

    @property
    def lost(self) -> int:
        """How many entries could not be written."""
