"""The credential that the hub shows to a worker."""

from __future__ import annotations

from base64 import b64decode

from hub.ports.identity import Vault
from rolecall.model.worker import Offer


def authorization_for(offer: Offer, vault: Vault | None) -> list[tuple[str, str]]:
    """The header of requests to that worker, if it enrolled with one. SecretUnreadable."""
    if not offer.credential or vault is None:
        return []
    return [("Authorization", vault.open(b64decode(offer.credential)).decode())]
