"""Files through a hub: by reference between clients and agents of ours, and inline to and from everybody else."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hub.identity.tokens import FILE_NAME, new
from rolecall import File, HubClient, InvalidRequest
from rolecall.model.a2a import JsonObject
from rolecall.model.principal import Kind, Principal
from tests.acceptance.loadclients import forget_peak, memory_peak, memory_used
from tests.acceptance.test_typed_handlers import run, start
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import Process, environment, start_announce, start_hub, start_worker
from tests.helpers.reachable_hubs import ReachableHub, reachable_hubs
from tests.helpers.tcp_relay import TcpRelay
from worker_sdk.files.parts import fetch

MIB = 1024 * 1024

PAGE = blocks_of("docs/howto/files.md")


@pytest.fixture(scope="module", params=reachable_hubs())
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReachableHub, Path]]:
    """With the worker of the page."""
    folder = tmp_path_factory.mktemp("files")
    for name, file in {"worker": "archive.py", "caller": "caller.py", "test": "test_archive.py"}.items():
        (folder / file).write_text(PAGE[name])
    with request.param(folder / "hub") as hub, start(hub, folder, "archive.py", "archive:a"):
        yield hub, folder
        assert "Traceback" not in hub.hub.output + (folder / "archive.py.log").read_text()


def test_the_caller_of_the_page_prints_what_it_shows(archive: tuple[ReachableHub, Path]) -> None:
    assert run(*archive, "caller.py") == PAGE["called"]


def test_the_test_of_the_page_passes(archive: tuple[ReachableHub, Path]) -> None:
    name = re.findall(r"async def (test_\w+)", PAGE["test"])[0]
    script = f"import asyncio, pathlib, test_archive; asyncio.run(test_archive.{name}(pathlib.Path('.')))"
    run(*archive, "-c", script)


def test_a_client_without_an_sdk_uploads_with_one_command(archive: tuple[ReachableHub, Path]) -> None:
    hub, folder = archive
    (folder / "photo.png").write_bytes(b"a photo")
    shell = Shell(folder)
    done = shell.run(PAGE["upload"], HUB=hub.url, TOKEN=hub.for_callers.get("ROLECALL_TOKEN", ""))
    assert done.returncode == 0, done.stderr
    kept = json.loads(done.stdout)
    assert (kept["name"], kept["media_type"], kept["size"]) == ("photo.png", "image/png", 7)
    assert kept["url"].startswith(f"{hub.url}/registry/files/")


# --- through agents of ours


MEMORY = 60
"""MiB that hub, worker and client may each grow by, however large a file is."""


def picture(folder: Path, size: int) -> Path:
    """So many MiB, each another."""
    path, step = folder / "picture.png", Random(3).randbytes(MIB)
    with path.open("wb") as out:
        for number in range(size):
            out.write(number.to_bytes(8, "big") + step[8:])
    return path


def started(stack: ExitStack, folder: Path, hub: str, *roles: str) -> list[Process]:
    return [
        stack.enter_context(start_worker(f"tests.acceptance.fileagents:{role}", f"{role}:a", hub, log=folder / f"{role}.log"))
        for role in roles
    ]


def called(hub: str, role: str, path: Path) -> dict[str, Any]:
    argv = [sys.executable, "-m", "tests.acceptance.fileagents", role, str(path)]
    done = subprocess.run(argv, env=environment({"ROLECALL_HUB": hub}), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_picture_goes_through_two_agents_and_comes_out_as_a_file(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub") as hub, ExitStack() as stack:
        started(stack, tmp_path, hub.url, "mirror", "middle")
        found = called(hub.url, "middle", picture(tmp_path, 20))
        assert found["sent"] == found["came"]
        assert found["name"] == "mirrored picture.png"


class Cuts(threading.Thread):
    """Cuts everything that goes through a relay, each time when so many bytes have gone through it."""

    def __init__(self, *relays: TcpRelay, every: int) -> None:
        super().__init__(daemon=True)
        self._relays = {relay: relay.passed for relay in relays}
        self._every = every
        self._over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._over.wait(0.005):
            for relay, last in self._relays.items():
                if relay.passed - last > self._every:
                    relay.cut()
                    self._relays[relay] = relay.passed
                    self.count += 1

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.count


def _through(folder: Path, size: int, every: int) -> None:
    """A file of so many MiB goes in and comes out. The connections of client and worker are cut meanwhile."""
    with start_hub(folder / "hub", worker_silence=120) as hub, ExitStack() as stack:
        relays = [stack.enter_context(TcpRelay(("127.0.0.1", hub.port))) for _ in range(2)]
        (worker,) = started(stack, folder, relays[0].url, "mirror")
        called(relays[1].url, "mirror", picture(folder, 1))  # what both need once
        path, processes = picture(folder, size), (hub, worker)
        for process in processes:
            forget_peak(process)
        before = [memory_used(process) for process in processes]
        cuts = Cuts(*relays, every=every)
        cuts.start()
        try:
            found = called(relays[1].url, "mirror", path)
        finally:
            count = cuts.stop()
        grown = [memory_peak(process) - used for process, used in zip(processes, before, strict=True)]
        print(f"\n{size} MiB, {count} cuts: hub {grown[0]:+.0f}, worker {grown[1]:+.0f}, client {found['grown']:+.0f} MiB")
        assert found["sent"] == found["came"]
        assert count >= 8, "in each of the two uploads and downloads"
        assert max(*grown, found["grown"]) < MEMORY


def test_fifty_megabytes_come_through_cuts_in_little_memory(tmp_path: Path) -> None:
    _through(tmp_path, 50, every=15 * MIB)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_gigabyte_comes_through_cuts_in_little_memory(tmp_path: Path) -> None:
    _through(tmp_path, 1024, every=200 * MIB)


def test_a_huge_file_is_read_in_a_plain_function(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub") as hub, ExitStack() as stack:
        started(stack, tmp_path, hub.url, "reader")
        path = picture(tmp_path, 17)
        assert asyncio.run(read(hub.url, path)) == {"size": 17 * MIB}


async def read(hub: str, path: Path) -> JsonObject | None:
    async with HubClient(hub) as client:
        return (await client.call("reader", "this", files=[path])).data


# --- other addresses, other hubs


async def mirrored(hub: str, content: bytes, token: str | None = None) -> File:
    """What comes back of a file."""
    async with HubClient(hub, token) as client:
        reply = await client.call("mirror", File("a.bin", raw=content))
        (file,) = reply.files
        await fetch([file])
        return file


def test_files_have_the_public_url_and_are_read_from_where_the_hub_is_reached(tmp_path: Path) -> None:
    holders = Principal("anna", Kind.CLIENT), Principal("farm", Kind.WORKER, roles=("*",))
    caller, worker = (new(tmp_path / FILE_NAME, holder, lasts=None, now=0.0)[0] for holder in holders)
    with start_hub(tmp_path, public_url="https://hub.example/behind") as hub, ExitStack() as stack:
        log = tmp_path / "mirror.log"
        stack.enter_context(
            start_worker("tests.acceptance.fileagents:mirror", "mirror:a", hub.url, log=log, env={"ROLECALL_TOKEN": worker})
        )
        file = asyncio.run(mirrored(hub.url, bytes(MIB), caller))
        assert file.raw == bytes(MIB)
        assert file.url.startswith("https://hub.example/behind/registry/files/")


def test_through_two_hubs_files_go_as_bytes_up_to_the_limit_of_an_event(tmp_path: Path) -> None:
    with ExitStack() as stack:
        near, far = (stack.enter_context(start_hub(tmp_path / name, max_event="4MiB")) for name in ("near", "far"))
        started(stack, tmp_path, far.url, "mirror")
        announced = start_announce("mirror", f"{far.url}/agents/mirror/", near.url, log=tmp_path / "announce.log")
        stack.enter_context(announced)
        file = asyncio.run(mirrored(near.url, bytes(MIB)))
        assert (file.raw, file.url) == (bytes(MIB), "")
        with pytest.raises(InvalidRequest, match="a file with a url that is no file of this hub"):
            asyncio.run(mirrored(near.url, bytes(5 * MIB)))
