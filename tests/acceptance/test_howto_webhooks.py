"""docs/howto/webhooks.md: its receivers get what its command asks for, and nothing that is not signed."""

from __future__ import annotations

import base64
import hmac
import re
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROOT, Process, free_port, is_live, start_hub, status_of
from tests.helpers.tools import node

BLOCKS = blocks_of("docs/howto/webhooks.md")
FORGED = b'{"id": "x"}'


def settings_of(shell: Shell) -> dict[str, Any]:
    """What the page sets for the hub."""
    asked = shell.run(BLOCKS["serve"].replace("rolecall serve", "env"))
    pairs = (line.partition("=") for line in asked.stdout.splitlines())
    return {
        name.removeprefix("ROLECALL_").lower(): value for name, _, value in pairs if re.match("ROLECALL_(PUSH|WEBHOOK)", name)
    }


def signed(secret: str, at: int) -> dict[str, str]:
    """The headers of FORGED, as who knows the secret sends them."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"forged.{at}.".encode() + FORGED, "sha256")).decode()
    return {"webhook-id": "forged", "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}


def set_webhook(shell: Shell, hub: str, port: int, receiver: Process) -> None:
    """A call whose changes go to that receiver."""
    receiver.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/") > 0)
    command = BLOCKS["set"].replace("8745", str(port)).replace("http://127.0.0.1:8420", hub).replace("m-1", str(port))
    shell.run(command, ROLECALL_TOKEN="").check_returncode()


def has_end(receiver: Process) -> bool:
    return " completed\n" in receiver.output


def refuse_others(port: int, secret: str) -> None:
    now = int(time.time())
    at = {"webhook-id": "forged", "webhook-timestamp": str(now)}
    other = {**signed(secret, now), "webhook-signature": f"v1,{base64.b64encode(bytes(32)).decode()}"}
    for headers in ({}, at, {**at, "webhook-signature": "v1,AAAA"}, other, signed(secret, now - 3600)):
        forged = httpx.post(f"http://127.0.0.1:{port}/", content=FORGED, headers=headers, trust_env=False)
        assert forged.status_code == 401


def test_both_receivers_get_what_is_signed_and_nothing_else(tmp_path: Path) -> None:
    settings = settings_of(Shell(tmp_path))
    programs = {"receiver.py": BLOCKS["receiver"], "receiver.mjs": BLOCKS["receiver-js"]}
    with ExitStack() as started:
        hub = started.enter_context(start_hub(tmp_path / "hub", **settings))
        shell = Shell(tmp_path, hub.url)
        counter = (sys.executable, ROOT / "examples/02_stream/counter.py")
        worker = Process(counter, log=tmp_path / "counter.log", env={"ROLECALL_HUB": hub.url, "ROLECALL_INSTANCE": "a"})
        started.enter_context(worker)
        receivers = {}
        for name, text in programs.items():
            (tmp_path / name).write_text(text)
            port = free_port()
            env = {"PORT": str(port), "ROLECALL_WEBHOOK_SECRET": settings["webhook_secret"]}
            argv = (node() if name.endswith(".mjs") else sys.executable, tmp_path / name)
            receivers[port] = started.enter_context(Process(argv, log=tmp_path / f"{name}.log", env=env))
        worker.wait_until(lambda: is_live(hub.url, "counter:a"))
        for port, receiver in receivers.items():
            set_webhook(shell, hub.url, port, receiver)
        for port, receiver in receivers.items():
            receiver.wait_until(partial(has_end, receiver))
            refuse_others(port, settings["webhook_secret"])
            assert "x" not in receiver.output.split()
