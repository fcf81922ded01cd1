"""What a worker and a client read: a worker by its name, settings of the environment, the address of the hub."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from worker_sdk import Worker, load_worker
from worker_sdk.config import hub_address, read_settings
from worker_sdk.errors import ConfigError


def test_a_worker_is_loaded_by_name_and_errors_name_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "good_one.py").write_text("from worker_sdk import Worker\nworker = Worker('a')\nother = 1\n")
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    assert isinstance(load_worker("good_one:worker"), Worker)
    assert load_worker("good_one") is load_worker("good_one.py:worker")
    for target, problem in (("good_one:other", "is a int"), ("good_one:x", "has no 'x'"), ("no_such_module:x", "no module")):
        with pytest.raises(ConfigError, match=problem):
            load_worker(target)
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_worker("needs_more:worker")


def test_the_environment_may_use_either_family_of_names(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    env = {
        "A2A_SERVER_URL": "http://old/",
        "A2A_AGENT_NAME": "n",
        "A2A_AGENT_URL": "http://me",
        "PORT": "9",
        "ROLECALL_TOKEN_FILE": str(tmp_path / "token"),
    }
    settings = read_settings(env)
    assert (settings.hub, settings.agent_name, settings.advertise_url) == ("http://old", "n", "http://me")
    assert (settings.port, str(settings.token)) == (9, "secret")
    assert read_settings({**env, "ROLECALL_HUB": "http://new"}).hub == "http://new"
    assert read_settings({}).hub == "http://127.0.0.1:8420"
    for wrong in ({"ROLECALL_HUB": "nonsense"}, {"PORT": "http"}, {"ROLECALL_TOKEN_FILE": str(tmp_path / "none")}):
        with pytest.raises(ConfigError):
            read_settings(wrong)


def test_a_hub_address_takes_arguments_then_environment_then_default() -> None:
    env = {"ROLECALL_HUB": "http://a:1/", "A2A_SERVER_URL": "http://b", "ROLECALL_TOKEN": "abc", "ROLECALL_CA_FILE": "ca.pem"}
    assert hub_address(environment=env) == ("http://a:1", "abc", Path("ca.pem"))
    assert hub_address("http://c", "t", "own.pem", environment=env) == ("http://c", "t", Path("own.pem"))
    assert hub_address(environment={"A2A_SERVER_URL": "http://b", "ROLECALL_CA_FILE": ""}) == ("http://b", None, None)
    assert hub_address(environment={}).url == "http://127.0.0.1:8420"


def test_without_an_address_the_hub_is_where_this_environment_would_start_one() -> None:
    assert hub_address(environment={"ROLECALL_PORT": "8478"}).url == "http://127.0.0.1:8478"
    assert hub_address(environment={"ROLECALL_PORT": "8478", "ROLECALL_HUB": "http://a:1"}).url == "http://a:1"
    for unknown in ("0", ""):
        assert hub_address(environment={"ROLECALL_PORT": unknown}).url == "http://127.0.0.1:8420"
    for wrong in ("hub", "65536", "-1", "²"):
        with pytest.raises(ConfigError, match=f"port: must be a whole number from 0 to 65535, not '{wrong}'"):
            hub_address(environment={"ROLECALL_PORT": wrong})


@pytest.mark.parametrize(
    "url", ["nonsense", "a b:1", "a:x", "ftp://a", "http://", "http://a?b", "http://a b", "http://a:x", "http://[::1"]
)
def test_a_hub_address_that_is_no_url_is_refused_with_its_setting(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^hub: must be an http or https URL .* \(--hub or ROLECALL_HUB\)$"):
        hub_address(url, environment={})


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("127.0.0.1:9/hub/", "http://127.0.0.1:9/hub"),
        ("localhost", "http://localhost:8420"),
        ("hub.localhost", "http://hub.localhost:8420"),
        ("[::1]:9", "http://[::1]:9"),
        ("hub:8420", "https://hub:8420"),
        ("10.0.0.5:8420", "https://10.0.0.5:8420"),
        ("agents.example.com", "https://agents.example.com"),
    ],
)
def test_a_hub_address_needs_no_scheme(given: str, url: str) -> None:
    assert hub_address(given, environment={}).url == url
    assert hub_address(environment={"ROLECALL_HUB": given}).url == url


def test_a_hub_address_that_holds_a_password_is_refused_and_not_shown() -> None:
    for url in ("http://me:secret@a", "me:secret@a:9"):
        with pytest.raises(ConfigError, match="use ROLECALL_TOKEN") as caught:
            hub_address(url, environment={})
        assert "secret" not in str(caught.value)
