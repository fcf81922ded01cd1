"""Times as A2A and our own APIs write them: UTC, with milliseconds and Z."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> float | None:
    """None: not a time. A time without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
