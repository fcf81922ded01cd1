"""The page for operators: its settings, its unit and its commands run, on a file system and with a systemd of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.telemetry.metrics import FAMILIES, PREFIX
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import ROOT, free_port, status_of, wait_for

BLOCKS = blocks_of("docs/howto/operate.md")
_PAGE = (ROOT / "docs" / "howto" / "operate.md").read_text()
_ROLECALL = f'#!/bin/sh\nexec {sys.executable} -m rolecall.cli "$@"\n'
_PROGRAMS = {
    "sudo": 'shift 2\nexec "$@"',
    "useradd": "",
    "chown": "",
    "install": 'shift 7\nexec mkdir -p -m 0700 "$@"',
    "python3": 'mkdir -p "$3/bin"\ncp "$(dirname "$0")/made/"* "$3/bin/"',
    "made/pip": 'echo "$@" >> "$(dirname "$0")/pip.log"',
    "systemctl": """
unit=UNIT; pid=$(dirname "$unit")/pid
runs() { grep -qs '^State:.[^Z]' "/proc/$(cat "$pid")/status"; }
stop() { ! runs || kill -TERM "$(cat "$pid")"; while runs; do sleep 0.02; done; }
start() {
    env $(sed -n 's/^Environment=//p' "$unit") $(sed -n 's/^ExecStart=//p' "$unit") </dev/null >>"$unit.log" 2>&1 &
    echo $! > "$pid"
}
case "$1" in
    daemon-reload) ;;
    start|enable) start ;;
    stop) stop ;;
    restart) stop; start ;;
    reload) MAINPID=$(cat "$pid") sh -c "$(sed -n 's/^ExecReload=//p' "$unit")" ;;
esac""",
}
"""What the commands of the page call beside `rolecall`, as far as it matters here."""


class Machine:
    """A folder with the paths of the page, and its programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.copy_port = free_port()
        self.shell = Shell(folder)
        self.unit = folder / "etc/systemd/system/rolecall.service"
        self.settings = folder / "etc/rolecall/rolecall.toml"
        for name in ("etc/rolecall", "etc/systemd/system", "etc/prometheus", "usr/local/bin", "backup", "run", "programs/made"):
            (folder / name).mkdir(parents=True)
        programs = {name: f"#!/bin/bash -eu\n{text}\n" for name, text in _PROGRAMS.items()}
        for name, text in {**programs, "made/rolecall": _ROLECALL}.items():
            program = folder / "programs" / name
            program.write_text(text.replace("UNIT", str(self.unit)))
            program.chmod(0o755)
        del self.shell.env["ROLECALL_DATA_DIR"]
        self.shell.env["PATH"] = f"{folder / 'programs'}:{folder / 'usr/local/bin'}:{os.environ['PATH']}"
        self.settings.write_text(self.here(BLOCKS["settings"]))
        self.unit.write_text(self.here(BLOCKS["unit"]))

    def here(self, text: str) -> str:
        """With the paths and ports of this machine."""
        text = re.sub(r"(?<![\w.-])/(?=(etc|var|backup|opt|run|usr)/)", f"{self.folder}/", text)
        return text.replace("8420", str(self.port)).replace("8421", str(self.copy_port))

    def run(self, text: str) -> str:
        done = self.shell.run(self.here(text))
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def pid(self) -> int:
        return int((self.unit.parent / "pid").read_text())

    @property
    def log(self) -> str:
        return self.unit.with_name("rolecall.service.log").read_text()

    def status(self, path: str, token: str | None = None) -> int:
        return status_of(f"http://127.0.0.1:{self.port}{path}", token)

    def wait_ready(self) -> None:
        wait_for(lambda: self.status("/readyz") == 200)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        if (made.unit.parent / "pid").exists():
            made.shell.run("systemctl stop rolecall")


def test_every_command_of_the_page_works(machine: Machine) -> None:
    token = machine.run(BLOCKS["install"]).strip()
    machine.wait_ready()
    assert (machine.status("/registry/agents", token), machine.status("/registry/agents")) == (200, 401)
    machine.run(BLOCKS["validate"])
    machine.run("systemctl reload rolecall")
    wait_for(lambda: '"agents_read"' in machine.log)
    machine.run(BLOCKS["backup"])
    (backup,) = (machine.folder / "backup/rolecall").iterdir()
    _look_at(machine, backup, token)
    _scrape(machine)
    _rename_the_log(machine)
    machine.run(BLOCKS["restore"].replace("2026-11-20", backup.name))
    machine.wait_ready()
    assert machine.status("/registry/agents", token) == 200
    assert (machine.folder / "var/lib/rolecall.before/rolecall.db").exists()
    before = machine.pid
    machine.run(BLOCKS["upgrade"])
    assert machine.pid != before
    machine.wait_ready()
    assert (machine.folder / "backup/rolecall/before-upgrade/rolecall.db").exists()
    assert "--upgrade rolecall[hub]" in (machine.folder / "opt/rolecall/bin/pip.log").read_text()
    machine.run("systemctl stop rolecall")
    _start_with_a_pid(machine)


def _look_at(machine: Machine, backup: Path, token: str) -> None:
    block = machine.here(BLOCKS["quarantine"].replace("2026-11-20", backup.name))
    with machine.shell.process(block, "copy.log") as copy:
        url = f"http://127.0.0.1:{machine.copy_port}"
        copy.wait_until(lambda: status_of(f"{url}/readyz") == 503)
        assert status_of(f"{url}/registry/tasks", token) == 200
        assert copy.stop() == 0


def _scrape(machine: Machine) -> None:
    machine.run(BLOCKS["reader"])
    token = machine.folder / "etc/prometheus/rolecall.token"
    assert token.stat().st_mode & 0o077 == 0
    assert machine.here(str(token)).endswith(re.findall(r"credentials_file: (\S+)}", BLOCKS["scrape"])[0])
    (target,) = re.findall(r'targets: \["(.*?)"\]', machine.here(BLOCKS["scrape"]))
    wait_for(lambda: status_of(f"http://{target}/metrics", token.read_text().strip()) == 200)


def _rename_the_log(machine: Machine) -> None:
    """What logrotate does with that file: a rename, and nothing else that the hub would notice."""
    assert not re.search(r"^ *(copytruncate|create\b|postrotate)", BLOCKS["logrotate"], re.MULTILINE)
    log = Path(re.findall(r"^(\S+) {$", machine.here(BLOCKS["logrotate"]), re.MULTILINE)[0])
    log.rename(log.with_suffix(".log.1"))
    assert machine.status("/registry/agents", "wrong") == 401
    wait_for(lambda: log.exists() and '"turned away"' in log.read_text())
    assert log.stat().st_mode & 0o077 == 0


def _start_with_a_pid(machine: Machine) -> None:
    with machine.shell.process(machine.here(BLOCKS["start"]), "start.log") as hub:
        hub.wait_until(lambda: machine.status("/readyz") == 200)
        machine.run(BLOCKS["reload"])
        hub.wait_until(lambda: '"agents_read"' in hub.output)
        assert hub.stop() == 0


def test_a_start_that_a_second_one_would_not_mend_ends_with_the_code_of_the_unit(machine: Machine) -> None:
    machine.run(BLOCKS["install"].partition("sudo")[0])
    (code,) = re.findall(r"^RestartPreventExitStatus=(\d+)$", BLOCKS["unit"], re.MULTILINE)
    command = re.findall(r"^ExecStart=(.*)$", machine.unit.read_text(), re.MULTILINE)[0]
    refused = machine.shell.run(command, ROLECALL_CONFIG=str(machine.settings))  # there is no token
    assert (refused.returncode, "there are no tokens" in refused.stderr) == (int(code), True)
    checked = machine.shell.run(machine.here(BLOCKS["validate"]))
    assert (checked.returncode, "there are no tokens" in checked.stderr + checked.stdout) == (int(code), True)


def test_systemd_takes_the_unit(machine: Machine) -> None:
    machine.run(BLOCKS["install"].partition("sudo")[0])
    assert _problems(machine.unit) == ""
    machine.unit.write_text(machine.unit.read_text().replace("UMask=", "Umask="))
    assert "Umask" in _problems(machine.unit)


def _problems(unit: Path) -> str:
    """What systemd says of that file. Empty: nothing, or it is not here."""
    try:
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=30, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not here")
    return "\n".join(line for line in done.stderr.splitlines() if str(unit) in line or unit.name in line)


def test_every_alert_names_metrics_and_labels_that_there_are() -> None:
    rules = re.findall(r"^\| [^|]+ \| `(.*?)` \| \d+[mh] \|", _PAGE.partition("## Alerts")[2], re.MULTILINE)
    assert len(rules) == len(re.findall(r"^\| ", _PAGE.partition("## Alerts")[2], re.MULTILINE)) - 1
    for rule in rules:
        names = re.findall(rf"{PREFIX}(\w+)(?:\{{(\w+)[!=])?", rule)
        assert names or rule.startswith("up{"), rule
        for name, label in names:
            assert name in FAMILIES, name
            labels = FAMILIES[name].labels
            wanted = {word for words in re.findall(r"by \(([\w, ]+)\)", rule) for word in words.split(", ")}
            assert wanted <= set(labels) and label in ("", *labels), (rule, labels)
