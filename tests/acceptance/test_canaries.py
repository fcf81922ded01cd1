"""Secrets and texts of callers and workers are nowhere else: not at other workers, webhooks, in logs, errors or the store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.test_tokens import new_token
from tests.helpers.client import text_message
from tests.helpers.processes import start_hub, wait_for
from tests.helpers.raw_server import RawServer, always, answer

TASK = (
    b'{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t","contextId":"c","status":{"state":"completed"},'
    b'"artifacts":[{"artifactId":"a","parts":[{"kind":"text","text":"done"}]}]}}'
)
WORKERS_OWN = "Bearer canary-of-the-worker-0123456789"
PUSH_TOKEN, PUSH_CREDENTIALS = "canary-push-token-0123456789", "canary-push-credentials-0123456789"
TEXT = "canary words that only the worker may get"


async def test_secrets_and_texts_reach_only_their_receivers(tmp_path: Path) -> None:
    admin_token, client_token = new_token(tmp_path, "--name", "root", "--kind", "admin"), new_token(tmp_path, "--name", "anna")
    env = {"log_level": "debug", "audit_log": tmp_path / "audit.log", "push_allowed_cidrs": "127.0.0.0/8"}
    async with RawServer(always(answer(TASK))) as worker, RawServer(always(answer(b"{}"))) as receiver:
        with start_hub(tmp_path, **env) as hub:
            async with httpx.AsyncClient(base_url=hub.url, trust_env=False) as http:
                card = await enrol(http, admin_token, worker.url)
                await send(http, client_token, receiver.url)
                await send(http, client_token, "http://10.0.0.1/refused", expect="error")
                await asyncio.to_thread(wait_for, lambda: bool(receiver.requests))
                seen = await everything_readable(http, client_token)
            sent_to_worker, received, output = raw(worker), raw(receiver), hub.output
    assert WORKERS_OWN in sent_to_worker
    assert PUSH_CREDENTIALS in received
    assert PUSH_TOKEN in received
    assert TEXT in sent_to_worker
    stored, logged = stored_in(tmp_path), output + stored_in(tmp_path, "audit.log")
    for secret, texts_seen in {
        client_token: [sent_to_worker, received, logged, stored, seen, card],
        admin_token: [sent_to_worker, received, logged, stored, seen, card],
        WORKERS_OWN: [received, logged, stored, seen, card],
        PUSH_TOKEN: [sent_to_worker, logged, stored, seen],
        PUSH_CREDENTIALS: [sent_to_worker, logged, stored, seen],
        TEXT: [logged],
    }.items():
        assert all(secret.removeprefix("Bearer ") not in place for place in texts_seen), secret


async def enrol(http: httpx.AsyncClient, admin_token: str, url: str) -> str:
    body = {"url": url, "authorization": WORKERS_OWN}
    put = await http.put("/registry/agents/echo/a", json=body, headers=bearer(admin_token))
    shown = await http.get("/registry/agents/echo:a", headers=bearer(admin_token))
    assert (put.status_code, shown.status_code) == (201, 200)
    return put.text + shown.text


async def send(http: httpx.AsyncClient, token: str, webhook: str, *, expect: str = "result") -> None:
    hook = {"url": webhook, "token": PUSH_TOKEN, "authentication": {"schemes": ["Basic"], "credentials": PUSH_CREDENTIALS}}
    params: dict[str, Any] = {**text_message(TEXT), "configuration": {"pushNotificationConfig": hook}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    got = await http.post("/agents/echo/", json=body, headers={**bearer(token), "Cookie": f"session={token}"})
    assert expect in got.json(), got.text


async def everything_readable(http: httpx.AsyncClient, token: str) -> str:
    """What the API shows, except the caller's own texts, which it may read."""
    paths = ["/registry/agents", "/registry/push/dead-letters", "/metrics", "/health", "/.well-known/agent-card.json"]
    texts = [(await http.get(page, headers=bearer(token))).text for page in paths]
    return "\n".join(texts)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def raw(server: RawServer) -> str:
    return "\n".join(repr(request) for request in server.requests)


def stored_in(folder: Path, name: str = "") -> str:
    """Every byte that the hub stores except its output, or those of one file."""
    files = [path for path in folder.glob(name or "*") if path.is_file() and (name or path.suffix != ".log")]
    return "".join(path.read_bytes().decode("latin-1") for path in files)
