"""The card of a worker that a test serves itself."""

from __future__ import annotations

from typing import Any


def plain_card(name: str, description: str) -> dict[str, Any]:
    """A card of 0.3, of an agent that streams text."""
    return {
        "name": name,
        "description": description,
        "version": "1",
        "protocolVersion": "0.3.0",
        "url": "http://localhost/",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }
