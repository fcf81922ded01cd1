"""A running hub is copied with `rolecall backup`; the copy is looked at in quarantine, then takes its place."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.test_push import Receiver, a_receiver, set_push
from tests.helpers.client import Reader, call, get_task, send, text_message, texts
from tests.helpers.processes import ROLECALL, HubProcess, environment, free_port, start_hub, start_worker, status_of, wait_for

SETTINGS: dict[str, Any] = {"lease_ttl": 4, "heartbeat": 0.5, "push_allowed_hosts": "127.0.0.1", "log_format": "json"}
COUNT = 300


def test_a_copy_in_quarantine_calls_nobody_and_a_restored_one_goes_on(tmp_path: Path) -> None:
    runs, copy = tmp_path / "runs", tmp_path / "copy"
    with a_receiver() as receiver, start_hub(tmp_path / "data", **SETTINGS) as hub:
        receiver.plan = [503] * 50
        source, env = "tests.acceptance.workers:counter", {"RUNS": str(runs)}
        with start_worker(source, "counter:a", hub.url, log=tmp_path / "worker.log", env=env):
            ended = str(send(hub.url, "counter", "3")["id"])
            assert "error" not in set_push(hub, ended, "c", receiver.url)
            reader = Reader(hub.url, "counter", f"{COUNT} 0.01")
            reader.start()
            wait_for(lambda: len(reader.frames) > 20 and bool(receiver.requests))
            taken = rolecall("backup", str(copy), "--data-dir", str(hub.data_dir))
            assert taken.returncode == 0, taken.stderr
            assert f"{hub.data_dir} is in {copy}: database of " in taken.stderr
            again = rolecall("backup", str(copy), "--data-dir", str(hub.data_dir))
            assert (again.returncode, "is not empty" in again.stderr) == (2, True)
            wait_for(lambda: len(reader.frames) > 60)  # these came after the copy
            hub.kill9()
            _look_at(copy, tmp_path / "quarantine.log", receiver, ended, reader.task)
            assert len(runs.read_text().splitlines()) == 2
            receiver.plan.clear()
            with start_hub(copy, port=hub.port, **SETTINGS) as restored:
                wait_for(lambda: len(receiver.of(ended, "c")) == 1)
                wait_for(lambda: get_task(restored.url, reader.task)["status"]["state"] == "completed")
                assert texts(get_task(restored.url, reader.task)) == [f"{n} " for n in range(COUNT)]
                assert len(runs.read_text().splitlines()) == 2, "a call was repeated"


def _look_at(copy: Path, log: Path, receiver: Receiver, ended: str, open_task: str) -> None:
    env = {f"ROLECALL_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    requests = len(receiver.requests)
    with HubProcess(copy, port=free_port(), log=log, env={**env, "ROLECALL_QUARANTINE": "true"}) as hub:
        hub.wait_until(lambda: status_of(f"{hub.url}/livez") == 200)
        assert texts(get_task(hub.url, ended)) == ["0 ", "1 ", "2 "]
        began = time.monotonic()
        assert get_task(hub.url, open_task)["status"]["state"] == "working"
        refused = call(f"{hub.url}/agents/counter/", "message/send", text_message("1"))["error"]
        assert refused["data"][0]["reason"] == "HUB_DRAINING"
        assert "in quarantine (ROLECALL_QUARANTINE)" in refused["message"]
        assert "quarantine" in call(f"{hub.url}/", "tasks/cancel", {"id": open_task})["error"]["message"]
        offer = {"url": "http://127.0.0.1:9/", "description": "late", "boot": "one"}
        enrolled = httpx.put(f"{hub.url}/registry/agents/late/a", json=offer, trust_env=False)
        assert (enrolled.status_code, enrolled.json()["reason"]) == (503, "HUB_DRAINING")
        assert httpx.get(f"{hub.url}/registry/tasks", trust_env=False).json()["total"] == 2
        assert httpx.get(f"{hub.url}/readyz", trust_env=False).text == "not ready: taking_calls\n"
        figures = httpx.get(f"{hub.url}/metrics", trust_env=False).text
        assert 'a2a_hub_ready{check="taking_calls"} 0.0' in figures
        assert 'a2a_hub_ready{check="disk"} 1.0' in figures
        assert "a2a_hub_push_owed 1.0" in figures
        assert re.search(r"^a2a_hub_disk_free_bytes \S+$", figures, re.MULTILINE)
        time.sleep(max(0.0, began + 1.2 - time.monotonic()))  # a hub looks for what is due every half second
        assert len(receiver.requests) == requests
        assert get_task(hub.url, open_task)["status"]["state"] == "working"
    lines = [json.loads(line) for line in hub.output.splitlines()]  # nothing else is printed
    (ready,) = [line for line in lines if line["event"] == "ready"]
    assert (ready["url"], ready["data_dir"]) == (hub.url, str(copy))
    assert "quarantine" in {line["event"] for line in lines}
    about = {"build": ready["build"], "schema": ready["schema"]}
    assert about.items() <= json.loads(rolecall("version", "--json").stdout).items()


def test_why_a_hub_does_not_start_is_json_too(tmp_path: Path) -> None:
    env = environment({"ROLECALL_LOG_FORMAT": "json", "ROLECALL_DATA_DIR": str(tmp_path), "ROLECALL_HOST": "0.0.0.0"})
    done = subprocess.run([*ROLECALL, "serve"], env=env, capture_output=True, text=True, timeout=30, check=False)
    (line,) = [json.loads(one) for one in (done.stdout + done.stderr).splitlines()]
    assert (done.returncode, line["event"], line["reason"], line["level"]) == (2, "cannot_serve", "CONFIG", "error")
    assert "there are no tokens" in line["message"]


def rolecall(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ROLECALL, *words], env=environment({}), capture_output=True, text=True, timeout=30, check=False)
