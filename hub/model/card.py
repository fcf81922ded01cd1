"""What an A2A card says that we act upon."""

from __future__ import annotations

from hub.model.a2a import JsonObject

REPLAY_EXTENSION = "https://rolecall.dev/ext/replay/v1"
"""A worker that lists it puts `id: <boot>.<seq>` on every stream frame and replays from `Last-Event-ID`, after the end too."""


def can_replay(card: JsonObject) -> bool:
    """Cards come from strangers: anything of a wrong shape means no."""
    capabilities = card.get("capabilities")
    extensions = capabilities.get("extensions") if isinstance(capabilities, dict) else None
    if not isinstance(extensions, list):
        return False
    return any(isinstance(entry, dict) and entry.get("uri") == REPLAY_EXTENSION for entry in extensions)
