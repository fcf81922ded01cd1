"""The client without `await`: it is the other client, run on a loop of its own."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from rolecall import HubClient as AsyncHubClient
from rolecall import NoLiveWorker, RolecallError, TimedOut
from rolecall.sync import HubClient, HubStream
from tests.helpers.processes import ROOT, environment
from tests.helpers.scripts import load_script
from tests.unit.cli.scripted_hub import Response, ScriptedHub, chunk, scripted_hub, status, task


@pytest.fixture
def hub() -> Iterator[ScriptedHub]:
    with scripted_hub() as hub:
        events = [task(), chunk("hel", append=False), chunk("lo"), status("completed", final=True)]
        hub.on("message/stream", Response(frames=list(enumerate(events, 1))))
        yield hub


def public(kind: type) -> dict[str, FunctionType]:
    return {name: value for name, value in vars(kind).items() if isinstance(value, FunctionType) and name[0] != "_"}


def test_it_has_the_methods_of_the_other_client_with_the_same_signatures() -> None:
    ours, theirs = public(HubClient), public(AsyncHubClient)
    assert set(ours) - set(theirs) == {"close", "run"}
    for name, method in [*theirs.items(), ("__init__", AsyncHubClient.__init__)]:
        own = getattr(HubClient, name)
        assert inspect.signature(own) == inspect.signature(method), f"{name}: run scripts/blocking_client.py"
        assert name == "__init__" or own.__doc__ == method.__doc__


def test_the_written_file_is_current() -> None:
    script = load_script("blocking_client")
    assert script.FILE.read_text(encoding="utf-8") == script.page(), "run scripts/blocking_client.py"


def test_a_script_calls_streams_and_reads(hub: ScriptedHub) -> None:
    with HubClient(hub.url) as client:
        assert client.call("echo", "hi").text == "hello"
        stream = client.stream("echo", "hi")
        assert isinstance(stream, HubStream)
        with stream:
            assert [event.text for event in stream] == ["", "hel", "lo", ""]
        assert (stream.task_id, stream.context_id, stream.cursor) == ("t1", "c1", "4")
        assert [event.text for event in client.stream("echo", "hi")] == ["", "hel", "lo", ""]
        assert client.stream("echo", "hi").reply().text == "hello"
        hub.error("message/stream", -32000, "nobody", "NO_LIVE_WORKER")
        with pytest.raises(NoLiveWorker):
            client.call("echo", "hi")


def test_changes_of_a_feed_come_without_an_end_and_the_cursor_follows(hub: ScriptedHub) -> None:
    hub.on("GET /registry/tasks/events", Response(frames=[(7, {"event": "admitted"}), (9, {"event": "ended"})], hold=True))
    with HubClient(hub.url) as client:
        feed = client.task_changes(role="echo")
        changes = iter(feed)
        first, second = next(changes), next(changes)
    assert feed.cursor == "9"
    assert [change["event"] for change in (first, second)] == ["admitted", "ended"]
    assert hub.requests[-1].query == "role=echo"


async def test_it_works_inside_a_running_loop(hub: ScriptedHub) -> None:
    with HubClient(hub.url) as client:
        assert client.call("echo", "hi").text == "hello"
        assert [event.text for event in client.stream("echo", "hi")] == ["", "hel", "lo", ""]


def test_closing_ends_the_thread_also_with_an_open_stream(hub: ScriptedHub) -> None:
    hub.on("message/stream", Response(frames=[(1, task())], hold=True))
    before = threading.active_count()
    client = HubClient(hub.url)
    events = iter(client.stream("echo", "hi"))
    assert next(events).kind == "task"
    client.close()
    client.close()
    hub.closing.set()
    assert not [thread for thread in threading.enumerate() if thread.name == "rolecall client"]
    assert threading.active_count() <= before + 1
    with pytest.raises(RuntimeError, match="closed"):
        client.health()


def test_several_threads_may_share_a_client(hub: ScriptedHub) -> None:
    texts: list[str] = []
    with HubClient(hub.url) as client:
        threads = [threading.Thread(target=lambda: texts.append(client.call("echo", "hi").text)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert texts == ["hello"] * 4


def test_a_time_out_is_that_of_the_call(hub: ScriptedHub) -> None:
    hub.on("message/stream", Response(frames=[(1, task())], hold=True))
    with HubClient(hub.url) as client, pytest.raises(TimedOut) as caught:
        client.call("echo", "hi", timeout=0.2)
    assert caught.value.task_id == "t1"


def test_an_error_ends_a_script_with_its_sentence_and_the_frames_of_the_script(hub: ScriptedHub) -> None:
    hub.on("message/stream", Response(frames=[(1, task())], hold=True))
    with HubClient(hub.url) as here, HubClient("http://127.0.0.1:9") as away:
        for client, what in ((here, "has not ended within 0.2 s. Its task t1 goes on."), (away, "(connection refused).")):
            with pytest.raises(RolecallError) as caught:
                client.call("echo", "hi", timeout=0.2)
            lines = "".join(traceback.format_exception(caught.value)).splitlines()
            assert lines[-1].endswith(what)
            frames = [line for line in lines if line.startswith("  File ")]
            assert len(frames) <= 4 and "test_blocking.py" in frames[0] and "The above" not in "".join(lines)


def test_ctrl_c_ends_a_wait_at_once(hub: ScriptedHub, tmp_path: Path) -> None:
    hub.on("message/stream", Response(frames=[(1, task())], hold=True))
    script = tmp_path / "waits.py"
    script.write_text(
        textwrap.dedent(f"""
        from rolecall.sync import HubClient
        with HubClient({hub.url!r}) as hub:
            try:
                print("waits", flush=True)
                hub.call("echo", "hi")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """)
    )
    with subprocess.Popen(
        [sys.executable, script], env=environment({}), cwd=ROOT, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:  # fmt: skip
        assert running.stdout is not None and running.stdout.readline() == "waits\n"
        while not hub.requests:
            time.sleep(0.02)
        began = time.monotonic()
        os.kill(running.pid, signal.SIGINT)
        assert running.stdout.readline() == "interrupted\n"
        assert running.wait(10) == 0
        assert time.monotonic() - began < 3
