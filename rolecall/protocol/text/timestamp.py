"""A moment as A2A and our own APIs spell it: UTC, with milliseconds and a Z."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> float | None:
    """None: it cannot be read. A time without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
