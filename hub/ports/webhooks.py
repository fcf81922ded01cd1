"""The webhooks port: requests to the receivers of push notifications."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

from rolecall.model.push import PushConfig


class WebhookRequest(NamedTuple):
    """One event on its way to one receiver. Each attempt has the same `id`."""

    id: str
    config: PushConfig
    body: bytes


class WebhookResult(NamedTuple):
    """What a receiver answered: an HTTP status, or 0 where there was none, and why."""

    status: int
    why: str
    retry_after: timedelta | None = None


class Webhooks(Protocol):
    """Sends to the receivers of push notifications. Nothing here is ever repeated by itself."""

    async def check(self, url: str) -> str:
        """The receiver's host, or WebhookRejected. Resolves its name, connects to nothing."""

    async def post(self, letter: WebhookRequest) -> WebhookResult:
        """Judges the address once more, and connects to the one that it judged. Never raises for what the receiver does."""
