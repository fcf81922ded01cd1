"""The webhooks port: requests to the receivers of push notifications."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

from rolecall.model.push import PushConfig


class WebhookRequest(NamedTuple):
    """One event for one receiver of a workspace. Each attempt has the same `id`."""

    workspace: str
    id: str
    config: PushConfig
    body: bytes


class WebhookResult(NamedTuple):
    """The answer of a receiver: its HTTP status, or 0 if there was none, and why."""

    status: int
    why: str
    retry_after: timedelta | None = None


class Webhooks(Protocol):
    """Sends to the receivers of push notifications. No request is repeated automatically."""

    async def check(self, workspace: str, url: str) -> str:
        """Return the receiver's host, or raise WebhookRejected or Overloaded. Resolves the name, does not connect."""

    async def post(self, request: WebhookRequest) -> WebhookResult:
        """Checks the address again, and connects to the address that it checked. Never raises for what the receiver does."""
