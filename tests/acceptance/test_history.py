"""Tasks of the past, as a person sees them: listed, written out, only a summary left, erased."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import httpx

from tests.acceptance.syncs import brisk
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROLECALL, HubProcess, free_port, start_hub, start_worker, wait_for


def rolecall(hub: HubProcess, *words: str, code: int = 0) -> str:
    """What a command prints on stdout."""
    env = {**os.environ, "ROLECALL_HUB": hub.url}
    done = subprocess.run([*ROLECALL, *words], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == code, done.stderr
    return done.stdout


def listed(hub: HubProcess) -> list[str]:
    return [task["id"] for task in httpx.get(f"{hub.url}/registry/tasks", trust_env=False).json()["tasks"]]


def test_tasks_are_written_out_then_only_summaries_then_nothing(tmp_path: Path) -> None:
    port = free_port()
    with start_hub(tmp_path / "hub", port=port) as hub:
        with start_worker("rolecall.cli.demo:echo", "echo:one", hub.url, log=tmp_path / "echo.log"):
            for text in ("one", "two"):
                rolecall(hub, "send", "echo", text, "--context-id", "c-1")
        lines = [json.loads(line) for line in rolecall(hub, "tasks", "export", "--role", "echo").splitlines()]
        assert [line["task"]["artifacts"][0]["parts"][0]["text"] for line in lines] == ["two", "one"]
        assert lines[0]["state"] == "completed"
        assert rolecall(hub, "tasks", "export", "--state", "failed") == ""
        newest, oldest = (line["id"] for line in lines)
        assert hub.stop() == 0

    with start_hub(tmp_path / "hub", argv=brisk.ARGV, port=port, retention=1, keep_summaries=600) as hub:
        wait_for(lambda: listed(hub) == [], 20)
        rows = json.loads(rolecall(hub, "tasks", "ls", "--all", "--json", "--since", "1h"))
        assert [row["id"] for row in rows] == [newest, oldest]
        assert {key: rows[0][key] for key in ("role", "state", "context_id", "events")} == {
            "role": "echo",
            "state": "completed",
            "context_id": "c-1",
            "events": lines[0]["events"],
        }
        rolecall(hub, "tasks", "rm", oldest)
        rolecall(hub, "tasks", "rm", oldest, code=1)
        assert [json.loads(line)["id"] for line in rolecall(hub, "tasks", "export", "--summaries").splitlines()] == [newest]
        rolecall(hub, "tasks", "rm", "--context-id", "c-1", "--yes")
        assert rolecall(hub, "tasks", "export", "--summaries") == ""


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    page, demo = blocks_of("docs/howto/history.md"), "rolecall.cli.demo:echo"
    with start_hub(tmp_path / "hub") as hub, start_worker(demo, "echo:one", hub.url, log=tmp_path / "echo.log"):
        for text in ("one", "two", "three"):
            rolecall(hub, "send", "echo", text, "--context-id", f"c-{text}")
        shell, values = Shell(tmp_path, hub.url), {"TASK_ID": listed(hub)[0], " ID": " c-two", "NAME": "local"}

        def left_after(command: str) -> int:
            for word, value in values.items():
                command = command.replace(word, value)
            done = shell.run(command)
            assert done.returncode == 0, done.stderr
            return len(listed(hub))

        assert [left_after(command) for command in page["look"].splitlines()] == [3] * 5
        assert (tmp_path / "results/artifact-1.txt").read_text() == "three"
        assert left_after(page["export"]) == 3
        assert len((tmp_path / "tasks.jsonl").read_text().splitlines()) == 3
        erased = [f"{command} --yes" for command in page["erase"].splitlines()]
        assert [left_after(command) for command in erased] == [2, 2, 1, 0]
