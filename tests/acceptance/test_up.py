"""`rolecall up`: ten agents in one console; what happens when one, the hub or the console is killed; and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from hub.identity.tokens import FILE_NAME, new, read
from rolecall.model.principal import Kind, Principal
from tests.acceptance.consoles import Folder, all_end, child_of, descendants, kill
from tests.helpers.processes import ROLECALL, ROOT, Process, environment, free_port, start_hub, wait_for
from tests.helpers.tools import node

FIRST_ANSWER_WITHIN = 15.0
WAITS = "Next, in another terminal:"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def ready(console: Process) -> None:
    console.wait_until(lambda: WAITS in console.output, 40)


def test_init_and_up_give_a_streamed_answer_within_fifteen_seconds_and_leave_no_process(folder: Folder) -> None:
    began = time.monotonic()
    assert folder.run("init").returncode == 0
    with folder.up() as console:
        wait_for(folder.hub_answers, FIRST_ANSWER_WITHIN)
        words: list[tuple[float, str]] = []
        wait_for(lambda: bool(folder.run("roles", "ls", "--hub", folder.url).stdout.count("shouter")), FIRST_ANSWER_WITHIN)
        argv = [*ROLECALL, "send", "--hub", folder.url, "shouter", "one two three four"]
        with subprocess.Popen(argv, env=environment(folder.env), stdout=subprocess.PIPE, cwd=ROOT) as send:
            assert send.stdout is not None
            while piece := send.stdout.read1(64):  # type: ignore[attr-defined]
                words.append((time.monotonic(), piece.decode()))
        assert "".join(text for _, text in words).split() == ["ONE", "TWO", "THREE", "FOUR"]
        assert len(words) > 1, "the answer came in one piece"
        assert words[0][0] - began < FIRST_ANSWER_WITHIN
        children = descendants(console.pid)
        assert len(children) == 2
        console.signal(signal.SIGINT)
        assert console.wait(30) == 0
    all_end(children, 1)
    assert "Traceback" not in console.output


AGENTS = """
[workers.shouter]
run = "shouter:worker"
instances = 4
[workers.counter]
run = "counter:worker"
instances = 2
[workers.planner]
run = "planner:worker"
[workers.script]
command = ["{python}", "script.py"]
[workers.plain]
command = ["{node}", "plain.mjs"]
env = {{AGENT_PORT = {port}}}
[announce.plain]
url = "http://127.0.0.1:{port}"
[workers.coder]
run = "coder:worker"
env = {{PAUSE = "0.5"}}
"""
PLAIN = """
import http from 'node:http';
const port = Number(process.env.AGENT_PORT);
const card = {name: 'plain', description: 'JavaScript', version: '1', protocolVersion: '0.3.0', url: `http://127.0.0.1:${port}/`,
  capabilities: {}, defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{id: 'plain', name: 'plain', description: 'plain', tags: []}]};
console.log('hub is ' + process.env.ROLECALL_HUB);
http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk)).on('end', () => {
    response.setHeader('content-type', 'application/json');
    if (request.method === 'GET') return response.end(JSON.stringify(card));
    const call = JSON.parse(body);
    const parts = [{kind: 'text', text: 'from JavaScript'}];
    const result = {kind: 'message', role: 'agent', messageId: 'm', parts};
    response.end(JSON.stringify({jsonrpc: '2.0', id: call.id, result}));
  });
}).listen(port, '127.0.0.1');
"""


def test_ten_agents_in_one_console_outlive_kills_and_end_with_one_signal(folder: Folder) -> None:
    port = free_port()
    text = AGENTS.format(python=sys.executable, node=node(), port=port)
    folder.write(text, shouter="", counter="", planner="", script="", coder="")
    (folder.place / "plain.mjs").write_text(PLAIN)
    with folder.up() as console:
        ready(console)
        _check_prefixes(folder, console)
        for role in ("shouter", "counter", "planner", "script", "coder"):
            assert folder.send(role, "any agent") == "ANY AGENT"
        wait_for(lambda: folder.run("send", "--hub", folder.url, "plain", "hi").stdout.strip() == "from JavaScript")
        _kill_a_worker(folder, console)
        _kill_the_hub(folder, console)
        _check_calls(folder, console)
        children = descendants(console.pid)
        assert len(children) == 12
        _end_in_a_task(folder, console)
    all_end(children, 1)
    assert "planner:1 was started 2 times" in console.output
    assert re.search(r"^up +\| ended after ", console.output, re.MULTILINE)
    assert "Traceback" not in console.output


def _check_prefixes(folder: Folder, console: Process) -> None:
    programs = {line.split(" |")[0].strip() for line in console.output.splitlines() if " | " in line}
    names = [f"shouter:{number}" for number in range(1, 5)] + ["counter:1", "counter:2"]
    names += [f"{name}:1" for name in ("planner", "script", "plain", "coder")]
    assert len(names) == 10
    assert programs >= {*names, "hub"}
    assert f"plain:1         | hub is {folder.url}" in console.output
    assert {line.index(" |") for line in console.output.splitlines() if re.match(r"[\w:]+ +\|", line)} == {15}
    listed = {f"  + {name} ready" for name in names if name.partition(":")[0] not in ("script", "plain")}
    assert listed <= set(console.output.splitlines())
    assert "  + plain:announced ready (http://127.0.0.1:" in console.output


def _kill_a_worker(folder: Folder, console: Process) -> None:
    """It is back under its name, so that nobody waits for the lease of the process before."""
    before = _instances(folder, "planner")
    kill(child_of(console, "planner:worker"))
    console.wait_until(lambda: "planner:1 was ended by SIGKILL; starts again in 0.5 s (1st time)" in console.output)
    wait_for(lambda: folder.run("send", "--hub", folder.url, "planner", "back").stdout.strip() == "BACK", 20)
    assert _instances(folder, "planner") == before


def _kill_the_hub(folder: Folder, console: Process) -> None:
    """It is back at its address, where the workers find it."""
    kill(child_of(console, "rolecall.cli serve"))
    console.wait_until(lambda: "hub was ended by SIGKILL; starts again in 0.5 s (1st time)" in console.output)
    wait_for(folder.hub_answers)
    wait_for(lambda: folder.run("send", "--hub", folder.url, "planner", "back").stdout.strip() == "BACK", 20)


def _check_calls(folder: Folder, console: Process) -> None:
    """Each call has a line for its begin and one for its end, whatever was killed."""
    tasks = httpx.get(f"{folder.url}/registry/tasks", trust_env=False).json()["tasks"]
    ended = sorted(task["id"][-4:] for task in tasks if task["state"] == "completed")
    assert len(ended) > 6

    def shown(end: str) -> list[str]:
        return sorted(re.findall(rf"^logs +\| [\d:]+  \S+ (\w{{4}}) {end}", console.output, re.MULTILINE))

    console.wait_until(lambda: len(shown("✓")) >= len(ended))
    assert shown("✓") == ended
    gone = shown("answered with a message, or took no call")
    assert shown("is called") == sorted([*ended, *gone])


def _end_in_a_task(folder: Folder, console: Process) -> None:
    """The task finishes, then its worker ends, then the hub."""
    argv = [*ROLECALL, "send", "--hub", folder.url, "coder", "one two three four"]
    with subprocess.Popen(argv, env=environment(folder.env), stdout=subprocess.PIPE, text=True) as send:
        assert send.stdout is not None
        assert send.stdout.read(1) == "O"
        console.signal(signal.SIGTERM)
        assert send.stdout.read().split() == ["NE", "TWO", "THREE", "FOUR"]
    assert send.returncode == 0
    assert console.wait(40) == 0
    text = console.output
    assert (
        text.index("stopping: 1 task still runs, and may finish; then the hub ends")
        < text.index("finishes 1 running task")
        < text.index("ended after")
    )


def _instances(folder: Folder, role: str) -> list[str]:
    agents = httpx.get(f"{folder.url}/registry/agents?role={role}", trust_env=False).json()["agents"]
    return [agent["instance_id"] for agent in agents]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a signal for the death of a parent")
def test_a_console_that_is_killed_leaves_no_process_and_the_next_takes_its_names(folder: Folder) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\ninstances = 3\n', shouter="")
    names = ["1", "2", "3"]
    with folder.up() as console:
        ready(console)
        assert sorted(_instances(folder, "shouter")) == names
        second = folder.run("up")
        assert (second.returncode, f"runs already, in process {console.pid} [RUNS_ALREADY]" in second.stderr) == (2, True)
        children = descendants(console.pid)
        assert len(children) == 4
        console.kill9()
    all_end(children)
    with folder.up(log="again.log") as console:
        ready(console)
        assert console.output.count("is enrolled at") == 3
        assert sorted(_instances(folder, "shouter")) == names
        assert folder.send("shouter:1", "hello") == "HELLO"
        assert folder.run("doctor", "--hub", folder.url).returncode == 0
        assert console.stop(20) == 0


def test_the_second_signal_stops_at_once(folder: Folder) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\nenv = {PAUSE = "30"}\n', shouter="")
    with folder.up() as console:
        ready(console)
        argv = [*ROLECALL, "send", "--hub", folder.url, "shouter", "one two"]
        with subprocess.Popen(
            argv, env=environment(folder.env), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as send:
            assert send.stdout is not None
            assert send.stdout.read(1) == "O"
            children = descendants(console.pid)
            console.signal(signal.SIGINT)
            console.wait_until(lambda: "finishes 1 running task" in console.output)
            time.sleep(0.6)  # a repetition within half a second counts as the same signal
            console.signal(signal.SIGINT)
            assert console.wait(5) == 130
            send.kill()
    all_end(children, 1)


# --- a hub that runs already, and hubs with tokens


def test_a_hub_that_runs_already_is_used_and_left_running(folder: Folder, tmp_path: Path) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\n', shouter="")
    with start_hub(tmp_path / "running", port=folder.port) as hub, folder.up() as console:
        ready(console)
        checked = folder.run("up", "--check")
        assert (checked.returncode, checked.stdout.splitlines()[1]) == (0, f"ok    hub: {hub.url} runs, and is used")
        assert f"{hub.url}   (was running, and is left running)" in console.output
        assert len(descendants(console.pid)) == 1
        assert folder.send("shouter", "hello") == "HELLO"
        console.wait_until(lambda: bool(re.search(r"^logs +\| [\d:]+  shouter:\S+ \w{4} ✓", console.output, re.MULTILINE)))
        assert console.stop(20) == 0
        assert hub.alive and folder.hub_answers()
        assert f"the hub at {hub.url} is left running" in console.output


def test_workers_read_the_token_of_a_running_hub_where_it_stands(folder: Folder, tmp_path: Path) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\n', shouter="")
    worker, _ = new(tmp_path / "running" / FILE_NAME, Principal("farm", Kind.WORKER, roles=("*",)), lasts=None, now=0.0)
    (tmp_path / "token").write_text(worker)
    with start_hub(tmp_path / "running", port=folder.port), folder.up(env={"ROLECALL_TOKEN_FILE": "../token"}) as console:
        ready(console)
        environ = Path(f"/proc/{child_of(console, 'shouter:worker')}/environ").read_text()
        assert worker not in environ
        (path,) = [Path(one.partition("=")[2]) for one in environ.split("\0") if one.startswith("ROLECALL_TOKEN")]
        assert path.is_absolute() and path.samefile(tmp_path / "token")
        assert console.stop(20) == 0


def test_its_own_hub_with_tokens_gives_workers_one_for_as_long_as_it_runs(folder: Folder, tmp_path: Path) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\n', shouter="")
    file = tmp_path / "data" / FILE_NAME
    client, _ = new(file, Principal("anna", Kind.CLIENT), lasts=None, now=0.0)
    with folder.up() as console:
        ready(console)
        assert "rolecall tokens new --name me" in console.output
        why = "a token sees its own calls, and that of rolecall-up may make none; set ROLECALL_TOKEN to yours"
        console.wait_until(lambda: f"up        | calls are not shown: {why}" in console.output)
        assert folder.run("send", "--hub", folder.url, "shouter", "hello").returncode == 4
        assert folder.send("shouter", "hello", env={"ROLECALL_TOKEN": client}) == "HELLO"
        assert sorted(entry.principal.kind for entry in read(file)) == ["client", "worker"]
        assert console.stop(20) == 0
    assert [entry.principal.name for entry in read(file)] == ["anna"]


# --- workers that fail, end, change


def test_when_nothing_is_left_to_run_it_ends(folder: Folder) -> None:
    folder.write('[workers.once]\ncommand = ["sh", "-c", "echo done; echo bad >&2"]\nrestart = "never"\n')
    with folder.up() as console:
        assert console.wait(40) == 0
    assert "once:1 | done\n" in console.output and "once:1 | bad\n" in console.output
    folder.write('[workers.once]\ncommand = ["sh", "-c", "exit 9"]\nrestart = "never"\n[workers.gone]\ncommand = ["./gone"]\n')
    with folder.up(log="again.log") as console:
        assert console.wait(40) == 1
    assert "gone:1 cannot be started: No such file or directory; it is left stopped" in console.output


def test_a_hub_that_refuses_to_start_ends_everything_with_its_code(folder: Folder) -> None:
    folder.write('[workers.shouter]\nrun = "shouter:worker"\n', shouter="")
    done = folder.run("up", env={"ROLECALL_HOST": "0.0.0.0"})
    assert done.returncode == 2
    assert "hub       | error: host 0.0.0.0 lets other machines call the hub" in done.stdout
    assert "hub ended with code 2: its settings are wrong; it is left stopped" in done.stdout


CHANGING = """
[workers.shouter]
run = "shouter:worker"
instances = 2
watch = ["prompt.txt"]
[workers.broken]
run = "broken:worker"
[workers.hopeless]
command = ["false"]
"""
PLANNER = '[workers.planner]\nrun = "planner:worker"\n'


def test_a_change_replaces_that_worker_alone_and_one_that_fails_is_left_stopped(folder: Folder) -> None:
    folder.write(CHANGING, shouter="", planner="", broken="raise RuntimeError('no key')\n")
    (folder.place / "common.py").write_text("")
    worker, broken, agents = (folder.place / name for name in ("shouter.py", "broken.py", "agents.toml"))
    right = "import common\n" + worker.read_text()
    worker.write_text(right)
    with folder.up("--reload") as console:
        console.wait_until(lambda: console.output.count("is enrolled at") == 2, 30)
        worker.write_text(right + "def broken(:\n")
        console.wait_until(
            lambda: "shouter.py has changed, and cannot be used for shouter:1; the version before" in console.output
        )
        console.wait_until(lambda: "SyntaxError: invalid syntax (shouter.py, line " in console.output)
        assert folder.send("shouter", "Hello") == "HELLO"
        worker.write_text(right.replace("word.upper()", "word.lower()"))
        answers = _answers_until_both_are_new(folder)
        assert set(answers) == {"HELLO", "hello"}
        kept = child_of(console, "shouter:1")
        agents.write_text(CHANGING + PLANNER)
        assert "error: broken:worker cannot be loaded: RuntimeError: no key" in console.output
        console.wait_until(lambda: "planner:1 starts: agents.toml has changed" in console.output)
        wait_for(lambda: folder.run("send", "--hub", folder.url, "planner", "new").stdout.strip() == "NEW", 20)
        agents.write_text(CHANGING)
        console.wait_until(lambda: "planner:1 ends: it is no longer in agents.toml" in console.output)
        assert child_of(console, "shouter:1") == kept
        for name in ("common.py", "prompt.txt"):
            (folder.place / name).write_text("x = 1\n")
            console.wait_until(lambda name=name: f"shouter:2 starts again: {name} has changed" in console.output)  # type: ignore[misc]
        console.wait_until(
            lambda: "broken:1 ended with code 1, at once, for the 5th time in a row; it is left" in console.output, 40
        )
        broken.write_text(worker.read_text().replace("shouter", "broken"))
        wait_for(lambda: folder.run("send", "--hub", folder.url, "broken", "Mended").stdout.strip() == "mended", 20)
        console.wait_until(lambda: "hopeless:1 ended with code 1, at once, for the 5th time" in console.output, 40)
        assert console.stop(20) == 1
    assert "hopeless:1 was left stopped after 5 starts: ended with code 1" in console.output
    assert "broken:1 was left" not in console.output


def _answers_until_both_are_new(folder: Folder) -> list[str]:
    """What callers get while the copies are replaced: each gets an answer."""
    answers: list[str] = []

    def are_new() -> bool:
        found = [_ask(folder, name) for name in ("shouter", "shouter:1", "shouter:2")]
        assert found[0] is not None, "there was no live worker"
        answers.append(found[0])
        return found[1:] == ["hello", "hello"]

    wait_for(are_new, 30)
    return answers


def _ask(folder: Folder, role: str) -> str | None:
    message = {"kind": "message", "role": "user", "messageId": uuid4().hex, "parts": [{"kind": "text", "text": "Hello"}]}
    params = {"message": message, "metadata": {"role": role}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
    answer = httpx.post(folder.url, json=call, timeout=20, trust_env=False).json()
    if "result" not in answer:
        return None
    parts = answer["result"]["artifacts"][0]["parts"]
    return "".join(part["text"] for part in parts).strip()


# --- the check


def test_the_check_starts_nothing_and_finds_what_would_fail(folder: Folder) -> None:
    text = """
[workers.shouter]
run = "shouter:worker"
[workers.broken]
run = "broken:worker"
[workers.nobody]
run = "shouter:nobody"
[workers.empty]
run = "empty:worker"
[workers.gone]
command = ["./gone"]
[workers.here]
command = ["sh", "-c", "touch started"]
env = {PORT = "taken"}
[workers.other]
command = ["sh"]
env = {PORT = 70000}
[announce.parrot]
url = "http://127.0.0.1:1"
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        folder.write(
            text.replace('"taken"', str(taken)),
            shouter="",
            broken="import no_such_module\n",
            empty="from rolecall import Worker\nworker = Worker('empty')\n",
        )
        done = folder.run("up", "--check")
    assert done.returncode == 2
    lines = [re.sub(r"\s+", " ", line) for line in done.stdout.splitlines()]
    for expected in (
        "ok file: agents.toml: 7 workers, 1 announced",
        f"ok hub: none runs; it would start at {folder.url} (data: {folder.env['ROLECALL_DATA_DIR']})",
        "ok worker shouter: shouter:worker serves shouter",
        "FAIL worker broken: broken:worker cannot be loaded",
        "FAIL worker nobody: shouter:nobody cannot be loaded",
        "FAIL worker empty: empty:worker cannot be loaded",
        "FAIL worker gone: there is no program ./gone",
        f"FAIL port {taken}: is taken, and here needs it",
        "FAIL port 70000: PORT of other is not a number up to 65535",
        "skip announce parrot: http://127.0.0.1:1: it does not answer; it is waited for",
    ):
        assert expected in lines, done.stdout
    assert not (folder.place / "started").exists()
    assert not folder.hub_answers()
