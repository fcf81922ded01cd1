"""With nginx in front: a hub without tokens answers nobody behind it, and one that has had tokens nobody at all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from hub.identity.tokens import FILE_NAME, MARK_NAME, new, revoke
from rolecall.model.principal import Kind, Principal
from tests.acceptance.nginx import nginx_before, plain
from tests.helpers.client import text_message
from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, Process, environment, start_hub, status_of, wait_for

OURS = plain(blocks_of("docs/howto/behind-nginx-or-caddy.md")["server"])
"""The one of the how-to."""
BARE = "location / { proxy_pass http://127.0.0.1:8420; }"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("x")}
REFUSED = 403
ANSWERED = 200

PROXIES = {
    "of the how-to": (OURS, REFUSED),
    "Forwarded": (BARE.replace("{", "{ proxy_set_header Forwarded for=$remote_addr;"), REFUSED),
    "X-Forwarded-Proto": (BARE.replace("{", "{ proxy_set_header X-Forwarded-Proto $scheme;"), REFUSED),
    "X-Real-IP": (BARE.replace("{", "{ proxy_set_header X-Real-IP $remote_addr;"), REFUSED),
    "Via": (BARE.replace("{", '{ proxy_set_header Via "1.1 front";'), REFUSED),
    # Nothing tells such a proxy from a caller on this machine: SECURITY.md says so.
    "bare": (BARE, ANSWERED),
}


@pytest.fixture(scope="module")
def open_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("open")) as hub:
        yield hub


@pytest.mark.parametrize("name", PROXIES)
def test_a_hub_without_tokens_refuses_what_a_proxy_marks_as_forwarded(tmp_path: Path, open_hub: HubProcess, name: str) -> None:
    location, status = PROXIES[name]
    with nginx_before(tmp_path / "nginx", location, open_hub.port) as url, httpx.Client(base_url=url, trust_env=False) as http:
        paths = ("/agents", "/registry/agents", "/metrics", "/health", "/.well-known/agent-card.json", "/tasks")
        answers = {path: http.get(path) for path in paths} | {"/": http.post("/", json=CALL)}
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, status)
        if status == REFUSED:
            assert all("rolecall tokens new" in answer.text for answer in answers.values())
        assert [http.get(path).status_code for path in ("/livez", "/readyz")] == [200, 200]
    assert status_of(f"{open_hub.url}/agents") == 200


def test_a_hub_on_loopback_whose_public_url_is_elsewhere_does_not_start_without_tokens(tmp_path: Path) -> None:
    env = {"ROLECALL_DATA_DIR": str(tmp_path), "ROLECALL_PUBLIC_URL": "https://agents.example.com", "ROLECALL_PORT": "0"}
    hub = Process((*ROLECALL, "serve"), log=tmp_path / "log", env=env)
    assert hub.wait() == 2
    assert "public_url says that others call the hub at https://agents.example.com, and there are no tokens." in hub.output
    assert "Make one: rolecall tokens new" in hub.output
    assert "Traceback" not in hub.output


def test_the_proxy_of_the_how_to_passes_calls_and_streams_with_a_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    token, _ = new(data / FILE_NAME, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    with (
        start_hub(data, public_url="https://agents.example.com") as hub,
        nginx_before(tmp_path / "nginx", OURS, hub.port) as url,
    ):
        named = {"Host": "agents.example.com"}
        assert httpx.get(f"{url}/agents", headers=named, trust_env=False).status_code == 401
        shown = {**named, "Authorization": f"Bearer {token}"}
        assert httpx.get(f"{url}/agents", headers=shown, trust_env=False).status_code == 200
        argv = (*ROLECALL, "doctor", "--hub", url)
        env = environment({"ROLECALL_TOKEN": token})
        doctor = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert doctor.returncode == 0, doctor.stdout


@pytest.mark.parametrize("how", ["revoked", "deleted"])
def test_a_hub_that_has_lost_its_last_token_answers_nobody_until_there_is_a_new_one(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    path = data / FILE_NAME
    old, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    hub = start_hub(data)
    with hub, nginx_before(tmp_path / "ours", OURS, hub.port) as ours, nginx_before(tmp_path / "bare", BARE, hub.port) as bare:
        urls = [f"{server}/agents" for server in (hub.url, ours, bare)]
        assert [status_of(url, old) for url in urls] == [200, 200, 200]
        assert (data / MARK_NAME).exists()
        revoke(path, "me") if how == "revoked" else path.unlink()
        wait_for(lambda: status_of(urls[0], old) == 401, 4)  # a file that is gone may be one that is being replaced
        assert [status_of(url) for url in urls] == [401, 401, 401]
        assert hub.stop() == 0
        with start_hub(data, port=hub.port) as again:
            assert [status_of(url, token) for url in urls for token in (None, old)] == [401] * 6
            assert "the hub has had tokens and has none now" in again.output
            fresh, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
            wait_for(lambda: status_of(urls[0], fresh) == 200, 2)
            assert [status_of(url) for url in urls] == [401, 401, 401]
