"""Every setting of the hub, and the only reader of its environment and file.

A setting comes from, in this order: a flag, the environment (`ROLECALL_PORT`, or the file that `ROLECALL_PORT_FILE` names),
the file `rolecall.toml`, its default. Flags, help texts and the reference page are made from the fields below.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, NamedTuple

from hub import config_values as read
from hub.config_sources import ConfigError, Given, find_file, from_env, from_file, secret, suggestion, variable

__all__ = ["SPECS", "ConfigError", "Connection", "Loaded", "Settings", "connection", "default_text", "flag", "load", "variable"]

DEFAULT_HUB = "http://127.0.0.1:8420"


class Spec(NamedTuple):
    """What people are told about a setting, and how its value is read."""

    reader: read.Reader
    about: str
    effect: str
    unit: str
    aliases: tuple[str, ...]
    default_text: str | None


def _setting(
    default: Any,
    reader: read.Reader,
    about: str,
    effect: str,
    *,
    unit: str = "",
    aliases: tuple[str, ...] = (),
    default_text: str | None = None,
) -> Any:
    return field(default=default, metadata={"spec": Spec(reader, about, effect, unit, aliases, default_text)})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the hub runs with. `Settings.of(port=0)` checks its values, as every other source is checked."""

    host: str = _setting(
        "127.0.0.1",
        read.text,
        "Address to listen on.",
        "0.0.0.0 or :: lets other machines call the hub; then name the workers' networks in worker_networks.",
    )
    port: int = _setting(8420, read.whole(0, 65535), "Port to listen on.", "0 takes any free port.")
    data_dir: Path = _setting(  # noqa: RUF009  it makes a field, no shared value
        Path(),
        read.path,
        "Folder for the database. One hub per folder, on a local disk.",
        "Another folder is another hub: with its own tasks, logs and leases.",
        default_text="the platform's data folder, such as ~/.local/share/rolecall",
    )
    store: str = _setting(
        "sqlite",
        read.store,
        "Where state is kept: sqlite (in data_dir) or memory:.",
        "memory: is gone when the hub stops.",
    )
    public_url: str | None = _setting(
        None,
        read.url,
        "The URL that callers reach the hub under; it stands in every card.",
        "Set it behind a proxy, or clients are sent to an address they cannot reach.",
        aliases=("A2A_AGENT_URL",),
        default_text="made from host and port",
    )
    lease_ttl: float = _setting(
        120.0,
        read.seconds(0, 86_400),
        "How long a worker's registration lasts without a heartbeat.",
        "Lower: dead workers leave discovery sooner, slow ones by mistake. 0: registrations never expire.",
        unit="seconds",
        aliases=("A2A_AGENT_DISCOVERY_MAX_AGE",),
    )
    heartbeat: float = _setting(
        45.0,
        read.seconds(0.05, 3600),
        "How often workers are asked to renew.",
        "Lower: loads are known more exactly, at more requests. It must be shorter than lease_ttl.",
        unit="seconds",
        default_text="45, or three eighths of a shorter lease_ttl",
    )
    worker_silence: float = _setting(
        60.0,
        read.seconds(0.1, 86_400),
        "How long a worker may give no sign of life during a task before the task fails.",
        "Higher: slow workers are left alone, hung ones are noticed later.",
        unit="seconds",
    )
    default_role: str | None = _setting(
        None,
        read.role,
        "The role of calls that name none.",
        "Without it such calls get an error that lists the live roles.",
    )
    card_version: str | None = _setting(
        None,
        read.choice("0.3"),
        "Serve cards of this protocol version only.",
        "Set it for clients that stumble over members they do not know.",
    )
    worker_networks: tuple[IPv4Network | IPv6Network, ...] = _setting(
        (),
        read.networks,
        "Networks (CIDR, with commas between) that workers' URLs may lie in. Loopback may be called while host is loopback.",
        "More networks: workers on more machines, and more addresses that the hub can be made to call.",
    )
    max_body: int = _setting(
        1024 * 1024,
        read.size(1024, 1024**3),
        "Largest request body.",
        "Higher: larger messages get in, and a caller can make the hub hold that much memory.",
        unit="bytes",
    )
    drain: float = _setting(
        30.0,
        read.seconds(0, 3600),
        "How long a stopping hub lets running calls finish.",
        "Lower: faster restarts, more streams that have to be resumed.",
        unit="seconds",
    )
    keep_alive: float = _setting(
        15.0,
        read.seconds(0.05, 600),
        "How often a quiet stream gets a comment, so that proxies do not cut it.",
        "Lower: stricter proxies are content, at more traffic.",
        unit="seconds",
    )
    connect_timeout: float = _setting(
        5.0,
        read.seconds(0.05, 120),
        "How long a connection to a worker may take.",
        "Lower: a dead machine is passed over sooner, a distant one by mistake.",
        unit="seconds",
    )
    retention: float = _setting(
        86_400.0,
        read.seconds(1, 10 * 365 * 86_400),
        "How long tasks and their logs are kept after their end.",
        "Higher: results can be fetched and streams resumed for longer, on more disk.",
        unit="seconds",
    )
    same_message: float = _setting(
        60.0,
        read.seconds(0, 86_400),
        "How long after its end a message is recognised when it comes again, and gets the answer that it got.",
        "Higher: later retries are safe, at some memory. A message with an Idempotency-Key is known as long as its task.",
        unit="seconds",
    )
    max_open_tasks: int = _setting(
        100_000,
        read.whole(1, 10_000_000),
        "How many unfinished tasks the hub takes on.",
        "Higher: more memory and disk. At the limit new calls are refused with OVERLOADED.",
    )
    max_pause: float = _setting(
        7 * 86_400.0,
        read.seconds(1, 10 * 365 * 86_400),
        "How long a task may wait for its caller's answer before it is dropped.",
        "Higher: questions stay open for longer, on more disk.",
        unit="seconds",
    )
    task_deadline: float = _setting(
        0.0,
        read.seconds(0, 10 * 365 * 86_400),
        "How long a worker may take over one message before the task fails. 0: as long as it shows signs of life.",
        "Lower: callers hear of endless work sooner, and long work is cut off.",
        unit="seconds",
    )
    max_log: int = _setting(
        64 * 1024 * 1024,
        read.size(64 * 1024, 1024**4),
        "Largest log of one task. One that grows beyond it fails.",
        "Higher: larger answers, and one worker can fill that much disk per task.",
        unit="bytes",
    )
    max_streams: int = _setting(
        10_000,
        read.whole(1, 10_000_000),
        "How many streams may be open to callers.",
        "Higher: more memory. At the limit new streams are refused with OVERLOADED.",
    )
    reader_patience: float = _setting(
        30.0,
        read.seconds(0.1, 3600),
        "How long a caller's stream may stand still before the hub drops it. Its cursor brings it back.",
        "Higher: slow networks are borne longer, and so is who stopped reading.",
        unit="seconds",
    )
    max_agents: int = _setting(
        20_000,
        read.whole(1, 10_000_000),
        "How many workers may be registered.",
        "Higher: more memory. At the limit new workers are refused with OVERLOADED.",
    )
    max_batch: int = _setting(
        50,
        read.whole(1, 1000),
        "How many calls one JSON-RPC batch may hold.",
        "Higher: one request can start that much work.",
    )
    log_level: str = _setting(
        "info",
        read.choice("debug", "info", "warning", "error"),
        "The least severe lines that are logged.",
        "debug has a line for every heartbeat.",
    )
    log_format: str = _setting(
        "auto",
        read.choice("auto", "console", "json"),
        "How lines are written.",
        "auto: for people on a terminal, one JSON object per line elsewhere.",
    )
    name: str = _setting(
        "Rolecall",
        read.text,
        "The hub's name on its card.",
        "What clients and people see; nothing is routed by it.",
        aliases=("A2A_AGENT_NAME",),
    )
    description: str = _setting(
        "Routes each message to a live worker of the role it names.",
        read.text,
        "The hub's description on its card.",
        "What clients and people see; nothing is routed by it.",
        aliases=("A2A_AGENT_DESCRIPTION",),
    )
    loop: str = _setting(
        "auto",
        read.choice("auto", "uvloop", "asyncio"),
        "The event loop.",
        "auto takes uvloop where it is installed; asyncio is slower and easier to debug.",
    )

    @classmethod
    def of(cls, **values: object) -> Settings:
        """Settings from these values and the defaults alone: no environment, no file."""
        return load(values, env={}, file=None, search=False).settings

    def url(self, port: int | None = None) -> str:
        """What callers reach the hub under; `port` is the one it is really bound to."""
        if self.public_url is not None:
            return self.public_url
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"


SPECS: dict[str, Spec] = {item.name: item.metadata["spec"] for item in fields(Settings)}
_FIELDS: dict[str, Field[Any]] = {item.name: item for item in fields(Settings)}


def flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def default_text(key: str) -> str:
    """The default as people write it."""
    return SPECS[key].default_text or read.shown(_FIELDS[key].default)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and, for each, where its value came from."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None

    def rows(self) -> list[tuple[str, str, str]]:
        """Key, value as shown to people (no passwords), origin."""
        return [(key, read.shown(getattr(self.settings, key)), self.origins.get(key, "default")) for key in SPECS]


def load(
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
    search: bool = True,
) -> Loaded:
    """Read every source, check everything, and raise one ConfigError with all that is wrong.

    Flags that are None were not given. `file` must exist; without it ROLECALL_CONFIG or ./rolecall.toml is read.
    """
    env = os.environ if env is None else env
    problems: list[str] = []
    chosen = find_file(file, env, problems) if search or file else None
    given = from_file(chosen, list(SPECS), problems) if chosen else {}
    given |= from_env(env, {key: spec.aliases for key, spec in SPECS.items()}, problems)
    given |= {key: Given(value, f"flag {flag(key)}") for key, value in (flags or {}).items() if value is not None}
    values = _parse(given, problems)
    if "data_dir" not in given:
        values["data_dir"] = _platform_data_dir(env, problems)
    origins = {key: item.origin for key, item in given.items()}
    if "heartbeat" not in given and 0 < values.get("lease_ttl", 0) < 120:
        values["heartbeat"] = values["lease_ttl"] * 0.375
        origins["heartbeat"] = "derived from lease_ttl"
    _check_heartbeat(values, origins, problems)
    if problems:
        raise ConfigError(problems)
    return Loaded(Settings(**values), origins, chosen)


def _parse(given: Mapping[str, Given], problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, item in given.items():
        if key not in SPECS:
            problems.append(f'unknown setting "{key}".{suggestion(key, list(SPECS))}')
            continue
        try:
            values[key] = SPECS[key].reader(item.value)
        except ValueError as error:
            problems.append(f"{key}: {error} ({item.origin})")
    return values


def _check_heartbeat(values: Mapping[str, Any], origins: Mapping[str, str], problems: list[str]) -> None:
    ttl, heartbeat = values.get("lease_ttl", 120.0), values.get("heartbeat", 45.0)
    if ttl > 0 and heartbeat >= ttl:
        problems.append(
            f"heartbeat ({heartbeat:g} s, {origins.get('heartbeat', 'default')}) must be shorter than "
            f"lease_ttl ({ttl:g} s, {origins.get('lease_ttl', 'default')}), or every worker would expire between two beats."
        )


def _platform_data_dir(env: Mapping[str, str], problems: list[str]) -> Path:
    try:
        if sys.platform == "win32":
            return Path(env.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "rolecall"
        if sys.platform == "darwin":
            return Path.home() / "Library/Application Support/rolecall"
        return Path(env.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "rolecall"
    except RuntimeError:
        problems.append("data_dir: this user has no home directory. Set ROLECALL_DATA_DIR.")
        return Path()


class Connection(NamedTuple):
    """Where the command line finds the hub, and what it shows there."""

    hub: str
    token: str | None


def connection(hub: str | None = None, token: str | None = None, *, env: Mapping[str, str] | None = None) -> Connection:
    env = os.environ if env is None else env
    problems: list[str] = []
    chosen = hub or env.get("ROLECALL_HUB") or env.get("A2A_SERVER_URL") or DEFAULT_HUB
    token = token or env.get("ROLECALL_TOKEN") or None
    if token is None and env.get("ROLECALL_TOKEN_FILE"):
        token = secret("ROLECALL_TOKEN_FILE", env["ROLECALL_TOKEN_FILE"], problems)
    try:
        chosen = read.url(chosen)
    except ValueError as error:
        problems.append(f"hub: {error} (--hub or ROLECALL_HUB)")
    if problems:
        raise ConfigError(problems)
    return Connection(chosen, token)
