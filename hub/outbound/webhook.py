"""Sends push notifications. Implements ports.Webhooks."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable
from datetime import timedelta
from email.utils import parsedate_to_datetime

from hub.outbound.client import Client
from hub.outbound.connection import Response
from hub.outbound.webhook_guard import WebhookGuard
from hub.outbound.worker_guard import NotAllowed
from hub.ports.webhooks import WebhookRequest, WebhookResult
from rolecall.errors import InvalidAnswer, Overloaded, WebhookRejected, WorkerBroke, WorkerError, WorkerUnreachable
from rolecall.model.push import PushConfig
from rolecall.protocol.dialects import DIALECTS

_TIMEOUT = 10.0
_SECRET_PREFIX = "whsec_"
_BEARER = "Bearer"


class HttpWebhooks:
    """`secret`: signs the requests as in Standard Webhooks; without one they are not signed."""

    def __init__(
        self,
        client: Client,
        guard: WebhookGuard,
        wall: Callable[[], float],
        *,
        secret: str | None = None,
        within: float = _TIMEOUT,
    ) -> None:
        self._client = client
        self._guard = guard
        self._wall = wall
        self._key = signing_key(secret) if secret is not None else None
        self._within = within

    async def check(self, workspace: str, url: str) -> str:
        return await self._guard.check(url, workspace)

    async def post(self, request: WebhookRequest) -> WebhookResult:
        try:
            async with asyncio.timeout(self._within):
                response = await self._client.post(
                    request.config.url,
                    request.body,
                    worker=request.id,
                    media=DIALECTS[request.config.dialect].push_media,
                    accept=b"*/*",
                    headers=[*authorization(request.config), *self._envelope(request)],
                    workspace=request.workspace,
                )
        except TimeoutError:
            return WebhookResult(0, f"no answer within {self._within:g} s")
        except WorkerUnreachable as error:
            return WebhookResult(0, _refusal_of(error) or error.why)
        except (WorkerBroke, InvalidAnswer) as error:
            return WebhookResult(0, error.why)
        except (WorkerError, Overloaded):
            return WebhookResult(0, "the hub has no connection for it")
        # Only the head matters. If the rest is short, the connection can be used again; otherwise it is closed.
        response.discard()
        return WebhookResult(response.status, f"HTTP {response.status}", self._retry_after(response))

    def _envelope(self, request: WebhookRequest) -> list[tuple[str, str]]:
        now = str(int(self._wall()))
        headers = [("webhook-id", request.id), ("webhook-timestamp", now)]
        if self._key is not None:
            headers.append(("webhook-signature", signature(self._key, request.id, now, request.body)))
        return headers

    def _retry_after(self, response: Response) -> timedelta | None:
        text = response.headers.get(b"retry-after", b"").decode("latin-1").strip()
        if text.isascii() and text.isdigit():
            return timedelta(seconds=int(text[:9]))
        try:
            return timedelta(seconds=max(0.0, parsedate_to_datetime(text).timestamp() - self._wall()))
        except (ValueError, OverflowError, TypeError):
            return None


def _refusal_of(error: WorkerUnreachable) -> str:
    """What the guard has against the address, with the setting that would allow it. Empty: it was something else."""
    refusal = error.__cause__.__cause__ if isinstance(error.__cause__, NotAllowed) else None
    return refusal.message if isinstance(refusal, WebhookRejected) else ""


def authorization(config: PushConfig) -> list[tuple[str, str]]:
    """The two headers that receivers check. In dialects whose `token_is_bearer`, a token wins over bearer credentials."""
    scheme = config.schemes[0] if config.schemes else _BEARER
    credentials = config.credentials
    is_bearer = config.token is not None and DIALECTS[config.dialect].token_is_bearer
    if is_bearer and (credentials is None or scheme.lower() == _BEARER.lower()):
        scheme, credentials = _BEARER, config.token
    headers = [("Authorization", f"{scheme} {credentials}")] if credentials is not None else []
    return [*headers, *([("X-A2A-Notification-Token", config.token)] if config.token is not None else [])]


def signing_key(secret: str) -> bytes:
    """ValueError: not a secret in the form of Standard Webhooks."""
    try:
        return base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("not Base64") from error


def signature(key: bytes, request: str, at: str, body: bytes) -> str:
    signed = hmac.digest(key, f"{request}.{at}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(signed).decode()
