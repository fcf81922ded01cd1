"""`rolecall serve` with a certificate: workers, commands and clients over TLS, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from rolecall.protocol.sse import FrameReader
from rolecall.protocol.text.jsontext import parse
from tests.helpers.certificates import Authority, Certificate, new_authority
from tests.helpers.client import text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import (
    ROLECALL,
    HubProcess,
    Process,
    environment,
    free_port,
    start_hub,
    start_worker,
    wait_for,
)

COMMANDS = blocks_of("docs/howto/tls.md")
SETTINGS = {"http2": 1, "lease_ttl": 4, "heartbeat": 0.5, "worker_silence": 5}


class TlsStack(NamedTuple):
    hub: HubProcess
    authority: Authority
    certificate: Certificate
    enough: Path

    def client(self, *, http2: bool) -> httpx.Client:
        context = ssl.create_default_context(cafile=self.authority.file)
        return httpx.Client(base_url=self.hub.url, verify=context, http2=http2, trust_env=False, timeout=20)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = environment({"ROLECALL_HUB": self.hub.url, "ROLECALL_CA_FILE": str(self.authority.file)})
        return subprocess.run([*ROLECALL, *words], env=env, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[TlsStack]:
    """A hub with two workers that trust its authority."""
    authority = new_authority(tmp_path / "authority")
    certificate = authority.certificate()
    hub = start_hub(tmp_path / "hub", certificate=certificate, **SETTINGS)
    stack = TlsStack(hub, authority, certificate, tmp_path / "enough")
    env = {"ROLECALL_CA_FILE": str(authority.file), "ENOUGH": str(stack.enough)}
    with (
        start_worker("tests.acceptance.syncs.workers:counter", "counter:a", hub.url, log=tmp_path / "counter.log", env=env),
        start_worker("tests.acceptance.workers:instant", "echo:a", hub.url, log=tmp_path / "echo.log", env=env),
    ):
        yield stack
    hub.end()
    assert "Traceback" not in hub.output


@pytest.mark.parametrize("http2", [False, True])
def test_calls_and_streams_pass_and_a_stream_resumes_after_a_kill(stack: TlsStack, http2: bool) -> None:
    with stack.client(http2=http2) as http:
        card = http.get("/agents/echo/.well-known/agent-card.json")
        assert card.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        addresses = {card.json()["url"], *(one["url"] for one in card.json()["additionalInterfaces"])}
        assert all(address.startswith(f"{stack.hub.url}/agents/echo") for address in addresses)
        answer = http.post("/agents/echo/", json=rpc("message/send", text_message("hello"))).json()["result"]
        assert answer["artifacts"][0]["parts"][0]["text"] == "hello"
        found: list[tuple[int, Any]] = []
        with pytest.raises(httpx.HTTPError):
            for frame in frames(http, "/agents/counter/", rpc("message/stream", text_message("count")), {}):
                found.append(frame)
                if len(found) == 8:
                    stack.hub.kill9()
    task = found[0][1]["id"]
    with start_hub(stack.hub.data_dir, port=stack.hub.port, certificate=stack.certificate, **SETTINGS):
        stack.enough.touch()
        with stack.client(http2=http2) as http:
            resume = {"Last-Event-ID": str(found[-1][0])}
            found += list(frames(http, "/", rpc("tasks/resubscribe", {"id": task}), resume))[1:]
        cursors = [cursor for cursor, _ in found]
        assert cursors == list(range(1, len(cursors) + 1))
        assert found[-1][1]["status"]["state"] == "completed"


def test_a_renewed_certificate_is_shown_without_a_restart(stack: TlsStack) -> None:
    before = ssl.get_server_certificate(("127.0.0.1", stack.hub.port))
    after = stack.authority.certificate()
    stack.certificate.cert.write_bytes(after.cert.read_bytes())
    time.sleep(0.2)  # as when a renewal replaces one file after the other
    stack.certificate.key.write_bytes(after.key.read_bytes())
    wait_for(lambda: ssl.get_server_certificate(("127.0.0.1", stack.hub.port)) != before, 20)
    assert stack.run("send", "echo", "hello").stdout == "hello\n"


def test_a_client_tells_apart_what_is_wrong_with_a_certificate(tmp_path: Path) -> None:
    authority = new_authority(tmp_path / "authority")
    stranger = new_authority(tmp_path / "stranger")
    cases = {
        "has expired": authority.certificate(expired=True),
        "is not valid yet": authority.certificate(early=True),
        "is for hub.example, not for 127.0.0.1": authority.certificate("hub.example"),
        "is signed by an authority that is not trusted here": stranger.certificate(),
    }
    for text, certificate in cases.items():
        with start_hub(tmp_path / "hub", certificate=certificate, store="memory:") as hub:
            env = environment({"ROLECALL_HUB": hub.url, "ROLECALL_CA_FILE": str(authority.file)})
            for words in (("ping",), ("doctor",), ("send", "echo", "hi")):
                done = subprocess.run([*ROLECALL, *words], env=env, capture_output=True, text=True, timeout=30, check=False)
                assert done.returncode == 3
                assert text in done.stdout + done.stderr


def test_a_hub_with_an_unusable_certificate_does_not_start(tmp_path: Path) -> None:
    authority = new_authority(tmp_path / "authority")
    one, other = authority.certificate(), authority.certificate()
    half = Process((*ROLECALL, "serve"), log=tmp_path / "half", env={"ROLECALL_TLS_CERT": str(one.cert)})
    assert half.wait() == 2
    assert "tls_key" in half.output
    other_key = {"ROLECALL_TLS_CERT": str(one.cert), "ROLECALL_TLS_KEY": str(other.key), "ROLECALL_DATA_DIR": str(tmp_path)}
    hub = Process((*ROLECALL, "serve"), log=tmp_path / "mixed", env=other_key)
    assert hub.wait() == 2
    assert f"tls_key: {other.key} is not the key of the certificate {one.cert}." in hub.output


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    made = authority.certificate()
    made.cert.rename(tmp_path / "hub.cert.pem")
    made.key.rename(tmp_path / "hub.key.pem")
    own = authority.certificate()
    own.cert.rename(tmp_path / "worker.cert.pem")
    own.key.rename(tmp_path / "worker.key.pem")
    shell = Shell(tmp_path)
    port = str(free_port())
    serve = COMMANDS["serve"].replace("export ", "").replace("\n", " ").strip()
    env = {"ROLECALL_CA_FILE": str(authority.file), "ROLECALL_HUB": f"https://127.0.0.1:{port}"}
    with shell.process(f"ROLECALL_PORT={port} {serve}", "hub.log", **env) as hub:
        hub.wait_until(lambda: "rolecall serves at https://127.0.0.1" in hub.output)
        start = COMMANDS["worker"].replace("export ", "").replace("\n", " ").strip()
        with shell.process(start, "worker.log", **env) as worker:
            worker.wait_until(lambda: "enrolled" in worker.output or "ready" in worker.output)
            called = shell.run(COMMANDS["call"].replace("8420", port))
            assert called.returncode == 0, called.stderr
            assert called.stdout.endswith("hello\n")
            context = ssl.create_default_context(cafile=authority.file)
            with httpx.Client(verify=context, trust_env=False) as http:
                url = http.get(f"https://127.0.0.1:{port}/registry/agents/echo:one").json()["url"]
                assert url.startswith("https://127.0.0.1:")
                assert http.get(f"{url}.well-known/agent-card.json").status_code == 200
                refused = http.post(url, json=rpc("message/send", text_message("hello")))
                assert (refused.status_code, refused.json()["error"][:45]) == (
                    401,
                    "this worker takes calls from its hub alone: c",
                )


def test_the_demo_runs_with_tls(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    made = authority.certificate()
    env = {
        "ROLECALL_TLS_CERT": str(made.cert),
        "ROLECALL_TLS_KEY": str(made.key),
        "ROLECALL_CA_FILE": str(authority.file),
        "ROLECALL_DATA_DIR": str(tmp_path / "data"),
        "ROLECALL_PORT": str(free_port()),
    }
    with Process((*ROLECALL, "dev"), log=tmp_path / "dev.log", env=env) as demo:
        demo.wait_until(lambda: "Next, in another terminal" in demo.output, 30)
        assert "+ echo:1 ready" in demo.output
        assert demo.stop() == 0


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def frames(http: httpx.Client, path: str, body: dict[str, Any], headers: dict[str, str]) -> Iterator[tuple[int, Any]]:
    """Cursor and event of each frame."""
    reader = FrameReader(limit=1024 * 1024)
    with http.stream("POST", path, json=body, headers=headers) as answer:
        for chunk in answer.iter_raw():
            for frame in reader.feed(chunk):
                if frame.data:
                    yield int(frame.id or 0), parse(frame.data)["result"]
