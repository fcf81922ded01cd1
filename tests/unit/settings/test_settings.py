"""Settings: where they come from, what is refused, and what is shown to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.settings.model import SPECS, Settings, load
from rolecall.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rolecall.toml"


def test_flag_beats_environment_beats_file_beats_default(file: Path) -> None:
    file.write_text('port = 1\nhost = "10.0.0.1"\ndrain = 7\n')
    loaded = load({"port": "3", "host": None}, env={"ROLECALL_PORT": "2", "ROLECALL_HOST": "10.0.0.2"}, file=file)
    assert (loaded.settings.port, loaded.settings.host, loaded.settings.drain) == (3, "10.0.0.2", 7)
    assert loaded.settings.max_batch == 50
    origins = {key: origin for key, _, origin in loaded.rows()}
    assert origins["port"] == "flag --port"
    assert origins["host"] == "env ROLECALL_HOST"
    assert origins["drain"] == f"{file}:3"
    assert origins["max_batch"] == "default"


def test_every_setting_has_help_texts_and_a_default_that_is_a_valid_value() -> None:
    settings = Settings.of()
    for key, spec in SPECS.items():
        assert spec.about.endswith("."), key
        assert spec.effect.endswith("."), key
        assert spec.default, key
        value = getattr(settings, key)
        assert getattr(Settings.of(**{key: value}), key) == value, key


def test_an_unknown_key_is_reported_with_its_line_and_a_suggestion(file: Path) -> None:
    file.write_text('host = "127.0.0.1"\n\nprot = 9000\n[registry]\nttl = 3\n')
    with pytest.raises(ConfigError) as caught:
        load(env={}, file=file)
    assert caught.value.problems[0] == f'{file}:3: unknown key "prot". Did you mean "port"?'
    assert caught.value.problems[1].startswith(f'{file}:4: unknown key "registry".')


def test_an_unknown_variable_is_reported_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r'unknown variable ROLECALL_LEASE_TLL\. Did you mean "ROLECALL_LEASE_TTL"\?'):
        load(env={"ROLECALL_LEASE_TLL": "3"}, search=False)


def test_variables_of_clients_and_workers_are_known() -> None:
    load(env={"ROLECALL_HUB": "http://h", "ROLECALL_TOKEN": "t", "ROLECALL_INSTANCE": "a"}, search=False)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"loop": "trio"}, env={"ROLECALL_PORT": "99999", "ROLECALL_PROT": "1"}, search=False)
    assert len(caught.value.problems) == 3
    assert "port: must be a whole number from 0 to 65535, not '99999' (env ROLECALL_PORT)" in caught.value.problems


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", -1),
        ("port", True),
        ("port", "80.5"),
        ("lease_ttl", "-1"),
        ("lease_ttl", "soon"),
        ("lease_ttl", float("nan")),
        ("max_body", "12"),
        ("max_body", "4 elephants"),
        ("max_body", float("inf")),
        ("public_url", "ftp://x"),
        ("public_url", "http://"),
        ("public_url", "http://u:p@host"),
        ("public_url", "http://host:99999"),
        ("default_role", "Agents"),
        ("default_role", "agents"),
        ("worker_networks", "10.0.0.1/8"),
        ("worker_networks", 3),
        ("allowed_origins", "*"),
        ("allowed_origins", "null"),
        ("allowed_origins", "app.example.com"),
        ("allowed_origins", "https://app.example.com/page"),
        ("allowed_origins", ["https://app.example.com", 3]),
        ("log_level", "loud"),
        ("card_version", "2.0"),
        ("store", "redis://u:secret@h"),
        ("name", ""),
    ],
)
def test_an_invalid_value_is_refused_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.of(**{key: value})
    assert caught.value.message.startswith(f"{key}: must ")
    assert "secret" not in caught.value.message


def test_durations_and_sizes_accept_units() -> None:
    settings = Settings.of(lease_ttl="5m", heartbeat="1500ms", retention="7d", max_body="4MiB")
    assert (settings.lease_ttl, settings.heartbeat, settings.retention) == (300, 1.5, 604_800)
    assert settings.max_body == 4 * 1024 * 1024
    assert Settings.of(port="8_420", max_body="1.1MiB", max_head=4096.5).max_body == 1_153_433


def test_networks_are_text_or_a_list(file: Path) -> None:
    file.write_text('worker_networks = ["10.0.0.0/8", "fd00::/8"]\n')
    from_text = Settings.of(worker_networks="10.0.0.0/8, fd00::/8")
    assert load(env={}, file=file).settings.worker_networks == from_text.worker_networks
    assert [str(network) for network in from_text.worker_networks] == ["10.0.0.0/8", "fd00::/8"]


def test_origins_are_text_or_a_list_in_any_case_also_with_a_slash(file: Path) -> None:
    file.write_text('allowed_origins = ["https://app.example.com/", "HTTP://localhost:5173"]\n')
    from_text = Settings.of(allowed_origins="https://App.example.com http://localhost:5173/")
    assert from_text.allowed_origins == ("https://app.example.com", "http://localhost:5173")
    assert load(env={}, file=file).settings.allowed_origins == from_text.allowed_origins


def test_heartbeat_must_be_shorter_than_the_lease() -> None:
    with pytest.raises(ConfigError, match=r"heartbeat \(30 s.*must be shorter than lease_ttl \(30 s"):
        Settings.of(lease_ttl=30, heartbeat=30)
    assert Settings.of(lease_ttl=0, heartbeat=30).lease_ttl == 0


def test_a_shorter_lease_gets_a_shorter_default_heartbeat() -> None:
    loaded = load(env={"A2A_AGENT_DISCOVERY_MAX_AGE": "8"}, search=False)
    assert (loaded.settings.lease_ttl, loaded.settings.heartbeat) == (8, 3)
    assert loaded.origins == {"lease_ttl": "env A2A_AGENT_DISCOVERY_MAX_AGE", "heartbeat": "derived from lease_ttl"}


def test_by_default_each_stream_that_may_be_open_has_a_connection_to_a_worker() -> None:
    for limits in ({}, {"max_streams": 70_000}, {"max_streams_per_workspace": 7_000}, {"max_streams": 10_000_000}):
        settings = Settings.of(**limits)
        assert settings.max_worker_connections >= settings.max_streams
        assert settings.max_worker_connections_per_workspace > settings.max_connections_per_worker
        assert settings.max_connections_per_worker > settings.max_streams_per_workspace
    assert Settings.of(max_worker_connections=5).max_worker_connections == 5


def test_a_very_short_or_endless_lease_is_no_problem_for_the_default_heartbeat() -> None:
    assert Settings.of(lease_ttl="100ms").heartbeat == pytest.approx(0.0375)
    assert Settings.of(lease_ttl=0).heartbeat == 45


def test_the_rolecall_name_of_a_variable_beats_its_alias() -> None:
    both = {
        "A2A_AGENT_DISCOVERY_MAX_AGE": "8",
        "ROLECALL_LEASE_TTL": "60",
        "A2A_AGENT_NAME": "Desk",
        "A2A_AGENT_URL": "http://a/",
    }
    settings = load(env=both, search=False).settings
    assert (settings.lease_ttl, settings.name, settings.public_url) == (60, "Desk", "http://a")


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(env={"ROLECALL_PORT": ""}, search=False).settings.port == 8420


def test_a_value_can_be_read_from_a_file_named_by_a_variable(tmp_path: Path) -> None:
    secret = tmp_path / "name"
    secret.write_text("Desk\n")
    loaded = load(env={"ROLECALL_NAME_FILE": str(secret)}, search=False)
    assert (loaded.settings.name, loaded.origins["name"]) == ("Desk", "env ROLECALL_NAME_FILE")
    with pytest.raises(ConfigError, match="both set"):
        load(env={"ROLECALL_NAME_FILE": str(secret), "ROLECALL_NAME": "x"}, search=False)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(env={"ROLECALL_NAME_FILE": str(tmp_path / "none")}, search=False)


def test_a_missing_or_broken_file_is_reported_with_its_line(file: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(env={"ROLECALL_CONFIG": str(file)})
    file.write_text("port = 1\nhost = [\n= 3")
    with pytest.raises(ConfigError, match=r"rolecall\.toml:3: not valid TOML"):
        load(env={}, file=file)


def test_the_file_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rolecall.toml").write_text("port = 9\n")
    assert load(env={}).settings.port == 9


def test_the_data_folder_depends_on_the_platform() -> None:
    assert load(env={"XDG_DATA_HOME": "/x"}, search=False).settings.data_dir.name == "rolecall"


def test_a_user_without_a_home_directory_must_name_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigError) as caught:
        load({"port": "many"}, env={}, search=False)
    assert caught.value.problems[1] == "data_dir: this user has no home directory. Set ROLECALL_DATA_DIR."
    assert load(env={"ROLECALL_DATA_DIR": "/data"}, search=False).settings.data_dir == Path("/data")


def test_settings_cannot_be_changed() -> None:
    settings = Settings.of()
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1
    assert settings.model_copy(update={"port": 1}).port == 1
    assert settings.port == 8420


def test_a_variable_must_be_spelled_exactly() -> None:
    """pydantic-settings reads variables in any case unless it is told otherwise."""
    assert load(env={"rolecall_port": "1", "port": "2", "PORT": "3"}, search=False).settings.port == 8420


def test_text_of_a_variable_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^name: must be text, not 'caf\\udce9' \(env ROLECALL_NAME\)$"):
        load(env={"ROLECALL_NAME": "caf\udce9"}, search=False)


def test_the_url_uses_the_bound_port() -> None:
    assert Settings.of(port=0).url(5123) == "http://127.0.0.1:5123"
    assert Settings.of(host="::1").url() == "http://[::1]:8420"
    assert "0.0.0.0" not in Settings.of(host="0.0.0.0").url()
    assert Settings.of(public_url="https://hub.example.com/x/").url(1) == "https://hub.example.com/x"


def test_secrets_are_never_shown() -> None:
    key, signing = "k" * 40, "whsec_" + "c2VjcmV0" * 4
    loaded = load(env={"ROLECALL_SECRET_KEY": key, "ROLECALL_WEBHOOK_SECRET": signing}, search=False)
    assert (loaded.settings.secret_key, loaded.settings.webhook_secret) == (key, signing)
    rows = {name: value for name, value, _ in loaded.rows()}
    assert (rows["secret_key"], rows["webhook_secret"]) == ("***", "***")
    assert key not in repr(loaded)
    assert signing not in repr(loaded)


@pytest.mark.parametrize(
    "setting",
    [
        ("ROLECALL_SECRET_KEY", "too-short-SECRET"),
        ("ROLECALL_WEBHOOK_SECRET", "whsec_U0VDUkVU"),
        ("ROLECALL_WEBHOOK_SECRET", "SECRET" * 8),
    ],
)
def test_an_invalid_secret_is_not_in_its_error_text(setting: tuple[str, str]) -> None:
    name, value = setting
    with pytest.raises(ConfigError) as caught:
        load(env={name: value}, search=False)
    assert value not in str(caught.value)
    with pytest.raises(ValueError, match="must be") as refused:
        Settings(**{name.removeprefix("ROLECALL_").lower(): value})
    assert value not in f"{refused.value} {refused.value!r}"


def test_a_secret_can_be_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 40 + "\n")
    assert load(env={"ROLECALL_SECRET_KEY_FILE": str(tmp_path / "key")}, search=False).settings.secret_key == "k" * 40
    assert Settings.of(admin_token=f" {'t' * 16}\n").admin_token == "t" * 16


def test_the_seed_names_for_allowed_webhook_receivers_work() -> None:
    env = {"PUSH_NOTIFICATION_ALLOWED_HOSTS": "a.example, B.example", "PUSH_NOTIFICATION_ALLOWED_CIDRS": "10.0.0.0/8,nonsense"}
    settings = load(env=env, search=False).settings
    assert settings.push_allowed_hosts == ("a.example", "B.example")
    assert settings.push_allowed_cidrs == ("10.0.0.0/8", "nonsense")
