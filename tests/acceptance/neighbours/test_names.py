"""Names that never resolve, of workers and of webhooks, delay nobody else's."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.acceptance.neighbours.load import start_agent
from tests.acceptance.neighbours.rig import BUSY, QUIET, Neighbours, neighbours
from tests.helpers.client import text_message

HUB = (sys.executable, "-m", "tests.acceptance.neighbours.slow_names")
SLOW = 40
"""More than there are threads for lookups."""
QUICK = 10
WITHIN = 1.0
"""Seconds for a call of the other workspace whose worker's name must be resolved. A slow name takes five, then a minute."""


def enrol(pair: Neighbours, workspace: str, role: str, url: str) -> None:
    answer = pair.ask(workspace, "PUT", f"/registry/agents/{role}/a", {"url": url, "boot": "b"}, kind="worker")
    assert answer.status_code == 201, answer.text


def send(pair: Neighbours, workspace: str, role: str, **configuration: Any) -> tuple[dict[str, Any], float]:
    """The answer, and the seconds that it took."""
    began = time.monotonic()
    params = {**text_message("hi"), "configuration": {"blocking": False, **configuration}}
    return pair.rpc(workspace, "message/send", params, role), time.monotonic() - began


def test_names_that_never_resolve_delay_only_their_own_workspace(tmp_path: Path) -> None:
    with neighbours(tmp_path, argv=HUB) as pair:
        agent, url = start_agent(tmp_path / "agent.log")
        with agent, ThreadPoolExecutor(SLOW) as callers, pair.unharmed():
            port = url.rstrip("/").rpartition(":")[2]
            for number in range(SLOW):
                enrol(pair, BUSY, f"slow{number}", f"http://{number}.slow.test:{port}/")
            for number in range(QUICK):
                enrol(pair, QUIET, f"quick{number}", f"http://{number}.quick.test:{port}/")
            enrol(pair, BUSY, "reached", url)
            webhooks = [
                {"pushNotificationConfig": {"url": f"https://{number}.slow.test/hook"}} for number in range(SLOW, 2 * SLOW)
            ]
            busy = [callers.submit(send, pair, BUSY, f"slow{number}", blocking=True) for number in range(SLOW // 2)]
            busy += [callers.submit(send, pair, BUSY, "reached", **webhooks[number]) for number in range(SLOW // 2)]
            time.sleep(0.5)
            took = []
            for number in range(QUICK):
                answer, seconds = send(pair, QUIET, f"quick{number}")
                assert answer["result"]["status"]["state"] == "working", answer
                took.append(seconds)
            refused = [call.result() for call in busy]
            print(f"\n{SLOW} slow names: calls by other names took at most {max(took) * 1000:.0f} ms")
            assert max(took) < WITHIN
            assert all("error" in answer for answer, _ in refused), refused
            assert max(seconds for _, seconds in refused) < 10
