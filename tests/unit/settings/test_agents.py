"""`[[agents]]`: what the hub takes from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hub.settings.agents import AgentSetting, read_again
from hub.settings.model import Loaded, load
from rolecall.cli import run
from rolecall.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rolecall.toml"


def loaded(file: Path, text: str) -> Loaded:
    file.write_text(text)
    return load(env={}, file=file)


def test_a_token_alone_is_a_bearer_token_and_more_is_the_whole_header(file: Path, tmp_path: Path) -> None:
    for content, expected in (("s3cret\n", "Bearer s3cret"), ("Basic YTpi", "Basic YTpi")):
        (tmp_path / "key").write_text(content)
        text = f'port = 1\n[[agents]]\nrole = "a"\nurl = "http://h/"\ncredential_file = "{tmp_path}/key"\n'
        (agent,) = loaded(file, text).agents
        assert agent == AgentSetting(f"{file}:2", "a", "http://h", None, tmp_path / "key", (), expected)
        assert "s3cret" not in repr(agent) and "YTpi" not in repr(agent)


def test_credentials_are_read_again_and_those_that_cannot_be_stay(file: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("old")
    text = "".join(
        f'[[agents]]\nrole = "{name}"\nurl = "http://{name}"\ncredential_file = "{tmp_path}/{name}"\n'
        for name in ("one", "two")
    )
    agents = loaded(file, text + '[[agents]]\nrole = "three"\nurl = "http://three"\n').agents
    assert read_again(agents) == ([*agents], [])
    (tmp_path / "one").write_text("newer")
    (tmp_path / "two").unlink()
    now, problems = read_again(agents)
    assert [agent.authorization for agent in now] == ["Bearer newer", "Bearer old", None]
    assert problems == [f"{file}:5: credential_file: {tmp_path}/two cannot be read as UTF-8 text."]


def test_the_file_is_read_again_and_of_it_the_agents_alone(file: Path) -> None:
    settings = loaded(file, 'port = 1\n[[agents]]\nrole = "a"\nurl = "http://h"\n')
    file.write_text('port = "wrong"\nunknown = 1\n[[agents]]\nrole = "b"\nurl = "http://h"\n')
    assert [agent.role for agent in settings.read_agents()] == ["b"]
    for broken in ("port = ", '[[agents]]\nrole = "b"\n'):
        file.write_text(broken)
        with pytest.raises(ConfigError):
            settings.read_agents()
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        settings.read_agents()


def test_a_hub_without_a_file_has_no_agents() -> None:
    settings = load(env={}, search=False)
    assert (settings.agents, settings.read_agents()) == ((), ())


def test_agents_are_no_setting_of_the_environment() -> None:
    with pytest.raises(ConfigError, match="unknown variable ROLECALL_AGENTS"):
        load(env={"ROLECALL_AGENTS": "[]"}, search=False)


def test_the_command_shows_them_as_json_without_their_secrets(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text("s3cret")
    loaded(file, f'[[agents]]\nrole = "a"\nurl = "http://h"\ncredential_file = "{tmp_path}/key"\n')
    assert run(["config", "show", "--json", "--config", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "s3cret" not in shown
    expected = {"role": "a", "url": "http://h", "credential_file": f"{tmp_path}/key", "origin": f"{file}:1"}
    assert json.loads(shown)["agents"] == [expected]
