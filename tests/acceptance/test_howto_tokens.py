"""Every command of the page about tokens runs, and the demo works on a hub with tokens."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hub.identity.tokens import FILE_NAME, new
from rolecall.model.principal import Kind, Principal
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROLECALL, Process, environment, free_port, is_live, start_hub, status_of, wait_for

COMMANDS = blocks_of("docs/howto/tokens.md")


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    made = Shell(tmp_path).run(COMMANDS["make"])
    assert made.returncode == 0, made.stderr
    files = sorted(file.name for file in tmp_path.glob("*.token"))
    assert files == ["admin.token", "anna.token", "board.token", "farm.token"]
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in files)
    admin = (tmp_path / "admin.token").read_text().strip()
    with start_hub(tmp_path / "data") as hub:
        shell = Shell(tmp_path, hub.url)
        with shell.process(COMMANDS["worker"], "worker.log") as worker:
            worker.wait_until(lambda: is_live(hub.url, "echo:one", admin))
            called = shell.run(COMMANDS["call"])
            assert (called.returncode, called.stdout) == (0, COMMANDS["called"]), called.stderr
            checked = shell.run(COMMANDS["check"])
            assert checked.returncode == 0, checked.stdout
            assert {line.split()[0] for line in checked.stdout.splitlines()} == {"ok"}
            _check_replacement(shell, hub.url)
            last = (tmp_path / "anna.token").read_text().strip()
            assert shell.run(COMMANDS["revoke"]).returncode == 0
            wait_for(lambda: _status(hub.url, last) == 401, 5)
            assert shell.run(COMMANDS["call"]).returncode == 4


def _check_replacement(shell: Shell, hub: str) -> None:
    before = (shell.folder / "anna.token").read_text().strip()
    list_text = shell.run("rolecall tokens ls").stdout
    old = next(line.split()[0] for line in list_text.splitlines() if " anna " in line)
    done = shell.run(COMMANDS["rotate"].replace("ID", old))
    assert done.returncode == 0, done.stderr
    wait_for(lambda: _status(hub, before) == 401, 5)
    assert shell.run(COMMANDS["call"]).stdout == COMMANDS["called"]


def _status(hub: str, token: str) -> int:
    return status_of(f"{hub}/registry/agents", token)


def test_the_demo_passes_its_token_to_its_workers(tmp_path: Path) -> None:
    token, port = "t" * 40, free_port()
    _, dev = COMMANDS["dev"].strip().splitlines()
    env = {"ROLECALL_ADMIN_TOKEN": token, "ROLECALL_PORT": str(port)}
    with Shell(tmp_path).process(dev, "dev.log", **env) as demo:
        demo.wait_until(lambda: "agent-card.json" in demo.output)
        _check_demo(demo, port, tmp_path, {"ROLECALL_TOKEN": token})
        assert 'export ROLECALL_TOKEN="$ROLECALL_ADMIN_TOKEN"' in demo.output
        assert token not in demo.output
        assert demo.stop() == 0


def test_the_demo_works_with_the_hubs_own_tokens(tmp_path: Path) -> None:
    shell, port = Shell(tmp_path), free_port()
    token, _ = new(tmp_path / "data" / FILE_NAME, Principal("anna", Kind.CLIENT), lasts=None, now=0.0)
    with shell.process("rolecall dev", "dev.log", ROLECALL_PORT=str(port)) as demo:
        demo.wait_until(lambda: "agent-card.json" in demo.output)
        _check_demo(demo, port, tmp_path, {"ROLECALL_TOKEN": token})
        assert demo.stop() == 0


def _check_demo(demo: Process, port: int, folder: Path, shown: dict[str, str]) -> None:
    assert demo.output.count("ready (demo worker)") == 3
    argv = [*ROLECALL, "send", "--hub", f"http://127.0.0.1:{port}", "echo", "hello"]
    env = environment(shown)
    sent = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert (sent.returncode, sent.stdout) == (0, "hello\n"), sent.stderr
    refused = subprocess.run(argv, env=environment({}), capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 4
