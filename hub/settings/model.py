"""Every setting of the hub, and the only reader of its environment and file.

A setting comes from, in this order: a flag, the environment (`ROLECALL_PORT`, or the file that `ROLECALL_PORT_FILE` names),
the file `rolecall.toml`, its default. Flags, help texts and the reference page are generated from the fields below.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from hub.settings import values as read
from hub.settings.sources import Given, find_file, from_env, from_file, platform_data_dir, suggestion
from hub.settings.values import Spec, setting
from rolecall.errors import ConfigError
from rolecall.setting import variable

__all__ = [
    "SPECS",
    "Loaded",
    "Settings",
    "default_text",
    "flag",
    "load",
    "variable",
]


@dataclass(frozen=True, slots=True)
class Settings:
    """The hub's settings. `Settings.of(port=0)` validates its values like every other source."""

    host: str = setting(
        "127.0.0.1",
        read.text,
        "Address to listen on.",
        "0.0.0.0 or :: lets other machines call the hub; then name the workers' networks in worker_networks.",
    )
    port: int = setting(8420, read.whole(0, 65535), "Port to listen on.", "0 takes any free port.")
    data_dir: Path = setting(  # noqa: RUF009  it makes a field, no shared value
        Path(),
        read.path,
        "Folder for the database. One hub per folder, on a local disk.",
        "Another folder means another hub, with its own tasks, logs and leases.",
        default_text="the platform's data folder, such as ~/.local/share/rolecall",
    )
    store: str = setting(
        "sqlite",
        read.store,
        "Where state is kept: sqlite (in data_dir) or memory:.",
        "memory: loses all state when the hub stops.",
    )
    public_url: str | None = setting(
        None,
        read.url,
        "The URL under which callers reach the hub. Every card contains it.",
        "Set it behind a proxy, or clients are sent to an address they cannot reach.",
        aliases=("A2A_AGENT_URL",),
        default_text="made from host and port",
    )
    lease_ttl: float = setting(
        120.0,
        read.seconds(0, 86_400),
        "How long a worker's registration lasts without a heartbeat.",
        "Lower: dead workers leave discovery sooner, and slow ones may leave it by mistake. 0: registrations never expire.",
        unit="seconds",
        aliases=("A2A_AGENT_DISCOVERY_MAX_AGE",),
    )
    heartbeat: float = setting(
        45.0,
        read.seconds(0.05, 3600),
        "How often workers are asked to renew their lease.",
        "Lower: loads are known more exactly, at the cost of more requests. It must be shorter than lease_ttl.",
        unit="seconds",
        default_text="45, or three eighths of a shorter lease_ttl",
    )
    worker_silence: float = setting(
        60.0,
        read.seconds(0.1, 86_400),
        "How long a worker may give no sign of life during a task before the task fails.",
        "Higher: slow workers are tolerated, and hung ones are detected later.",
        unit="seconds",
    )
    default_role: str | None = setting(
        None,
        read.role,
        "The role of calls that name none.",
        "Without it such calls get an error that lists the live roles.",
    )
    card_version: str | None = setting(
        None,
        read.choice("0.3", "1.0"),
        "Serve cards of this protocol version only.",
        "Set it for clients that fail on unknown members.",
    )
    worker_networks: tuple[IPv4Network | IPv6Network, ...] = setting(
        (),
        read.networks,
        "Networks (CIDR, separated by commas) that workers' URLs may be in. Loopback is allowed while host is loopback.",
        "More networks: workers on more machines, and more addresses that the hub can be made to call.",
    )
    max_body: int = setting(
        1024 * 1024,
        read.size(1024, 1024**3),
        "Largest request body.",
        "Higher: larger messages are accepted, and a caller can make the hub hold that much memory.",
        unit="bytes",
    )
    max_head: int = setting(
        32 * 1024,
        read.size(4096, 1024**2),
        "Largest total size of a request's headers.",
        "Higher: longer cookies and tokens are accepted, and every connection can hold twice that much memory.",
        unit="bytes",
    )
    max_card: int = setting(
        64 * 1024,
        read.size(1024, 16 * 1024**2),
        "Largest card that a worker may enrol with, as JSON.",
        "Higher: more skills and texts fit, and each of max_agents workers can hold that much memory and disk.",
        unit="bytes",
    )
    max_depth: int = setting(
        100,
        read.whole(16, 190),
        "How deep arrays and objects may be nested in a request's JSON.",
        "Higher: workers receive deeper JSON.",
    )
    drain: float = setting(
        30.0,
        read.seconds(0, 3600),
        "How long a stopping hub lets running calls finish.",
        "Lower: faster restarts, and more streams that must be resumed.",
        unit="seconds",
    )
    keep_alive: float = setting(
        15.0,
        read.seconds(0.05, 600),
        "How often a quiet stream gets a comment, so that proxies do not cut it.",
        "Lower: streams survive stricter proxies, at the cost of more traffic.",
        unit="seconds",
    )
    connect_timeout: float = setting(
        5.0,
        read.seconds(0.05, 120),
        "How long a connection to a worker may take.",
        "Lower: the hub gives up on a dead machine sooner, and may give up on a distant one by mistake.",
        unit="seconds",
    )
    retention: float = setting(
        86_400.0,
        read.seconds(1, 10 * 365 * 86_400),
        "How long tasks and their logs are kept after their end.",
        "Higher: results can be fetched and streams resumed for longer, at the cost of disk space.",
        unit="seconds",
    )
    same_message: float = setting(
        60.0,
        read.seconds(0, 86_400),
        "How long after its end a repeated message is recognised and gets the first answer again.",
        "Higher: later retries are safe, for more memory. A message with an Idempotency-Key is known as long as its task.",
        unit="seconds",
    )
    max_open_tasks: int = setting(
        100_000,
        read.whole(1, 10_000_000),
        "How many unfinished tasks the hub accepts.",
        "Higher: more memory and disk. At the limit new calls are refused with OVERLOADED.",
    )
    max_open_tasks_per_workspace: int = setting(
        50_000,
        read.whole(1, 10_000_000),
        "How many unfinished tasks one workspace may have. Without tokens there is one workspace.",
        "Higher: one workspace can fill more of max_open_tasks. At the limit its new calls are refused with OVERLOADED.",
    )
    max_pause: float = setting(
        7 * 86_400.0,
        read.seconds(1, 10 * 365 * 86_400),
        "How long a task may wait for its caller's answer before it is dropped.",
        "Higher: questions stay open for longer, at the cost of disk space.",
        unit="seconds",
    )
    task_deadline: float = setting(
        0.0,
        read.seconds(0, 10 * 365 * 86_400),
        "How long a worker may work on one message before the task fails. 0: as long as it shows signs of life.",
        "Lower: endless work fails sooner, and long work is cut off.",
        unit="seconds",
    )
    max_log: int = setting(
        64 * 1024 * 1024,
        read.size(64 * 1024, 1024**4),
        "Largest log of one task. One that grows beyond it fails.",
        "Higher: larger answers, and one worker can fill that much disk per task.",
        unit="bytes",
    )
    max_connections: int = setting(
        20_000,
        read.whole(1, 10_000_000),
        "How many connections callers and workers may have open to the hub.",
        "Higher: more memory. At the limit a new one, also for /livez, is answered with OVERLOADED and closed.",
    )
    max_streams: int = setting(
        10_000,
        read.whole(1, 10_000_000),
        "How many streams may be open to callers.",
        "Higher: more memory. At the limit new streams are refused with OVERLOADED.",
    )
    max_streams_per_workspace: int = setting(
        5_000,
        read.whole(1, 10_000_000),
        "How many streams may be open to the callers of one workspace. Without tokens there is one workspace.",
        "Higher: one workspace can fill more of max_streams. At the limit its new streams are refused with OVERLOADED.",
    )
    reader_patience: float = setting(
        30.0,
        read.seconds(0.1, 3600),
        "How long a caller may stop reading its stream before the hub drops it. The caller can resume from its cursor.",
        "Higher: slow networks are tolerated longer, and so are callers that stopped reading.",
        unit="seconds",
    )
    max_agents: int = setting(
        20_000,
        read.whole(1, 10_000_000),
        "How many workers may be registered.",
        "Higher: more memory. At the limit new workers are refused with OVERLOADED.",
    )
    max_agents_per_token: int = setting(
        5_000,
        read.whole(1, 10_000_000),
        "How many workers one holder of tokens may have registered.",
        "Higher: one holder can fill more of max_agents. Beyond it: 429. Without tokens it does not apply.",
    )
    max_rate: int = setting(
        1_000,
        read.whole(0, 10_000_000),
        "How many requests a second one holder of tokens may send, with twice that in a burst. 0: any number.",
        "Higher: one caller can take more of the hub. Beyond it: 429. Without tokens it does not apply.",
    )
    max_at_once: int = setting(
        2_000,
        read.whole(0, 10_000_000),
        "How many requests of one holder of tokens may be under way, streams included. 0: any number.",
        "Higher: one caller can hold more of the hub's memory. Beyond it: 429.",
    )
    max_batch: int = setting(
        50,
        read.whole(0, 1000),
        "How many calls one JSON-RPC batch may hold. 0: batches are refused.",
        "Higher: one request can start that much work.",
    )
    push_allowed_hosts: tuple[str, ...] = setting(
        (),
        read.names,
        "Hosts, separated by commas, that webhooks may go to at any address, port and scheme.",
        "Callers can make the hub call these names. Every other webhook must be https to a public address.",
        aliases=("PUSH_NOTIFICATION_ALLOWED_HOSTS",),
    )
    push_allowed_cidrs: tuple[str, ...] = setting(
        (),
        read.names,
        "Networks (CIDR, separated by commas) that webhooks may go to on any port, also with plain http.",
        "Callers can make the hub call every address in them. An invalid network is ignored, with a warning.",
        aliases=("PUSH_NOTIFICATION_ALLOWED_CIDRS",),
    )
    push_retry: float = setting(
        86_400.0,
        read.seconds(1, 7 * 86_400),
        "How long a failing webhook is retried before an event becomes a dead letter.",
        "Higher: longer outages of receivers are bridged, and tasks are kept that much longer.",
        unit="seconds",
    )
    max_push_configs: int = setting(
        10,
        read.whole(1, 1000),
        "How many webhooks one task may have.",
        "Higher: one call can make the hub send that many requests for each event.",
    )
    admin_token: str | None = setting(
        None,
        read.token,
        "A token with every right. `rolecall tokens new` makes tokens with fewer rights.",
        "With any token set, every request except those for cards and health must carry one.",
        secret=True,
    )
    tokens: Path | None = setting(  # noqa: RUF009  it makes a field, no shared value
        None,
        read.path,
        "The token file that `rolecall tokens` writes.",
        "Another file has other tokens. The hub reads it again when it changes.",
        default_text="tokens.json in data_dir",
    )
    webhook_secret: str | None = setting(
        None,
        read.webhook_secret,
        "The secret (whsec_…) that webhooks are signed with, as in Standard Webhooks.",
        "Receivers that know it can distinguish the hub's notifications from forged ones.",
        secret=True,
    )
    secret_key: str | None = setting(
        None,
        read.secret_key,
        "The key that encrypts callers' stored secrets: random text of at least 32 characters.",
        "With another key, secrets stored before cannot be read, and their webhooks fail.",
        default_text="created once, as secret.key in data_dir",
        secret=True,
    )
    audit_log: Path | None = setting(  # noqa: RUF009  it makes a field, no shared value
        None,
        read.path,
        "File of the audit trail: who enrolled, sent, cancelled, and who was refused.",
        "One JSON line per entry, never message contents. It only grows: use log rotation.",
        default_text="no trail is kept",
    )
    log_level: str = setting(
        "info",
        read.choice("debug", "info", "warning", "error"),
        "The lowest level that is logged.",
        "debug logs every heartbeat.",
    )
    log_format: str = setting(
        "auto",
        read.choice("auto", "console", "json"),
        "The format of log lines.",
        "auto: console on a terminal, one JSON object per line elsewhere.",
    )
    name: str = setting(
        "Rolecall",
        read.text,
        "The hub's name on its card.",
        "Clients and people see it; it does not affect routing.",
        aliases=("A2A_AGENT_NAME",),
    )
    description: str = setting(
        "Routes each message to a live worker of the role it names.",
        read.text,
        "The hub's description on its card.",
        "Clients and people see it; it does not affect routing.",
        aliases=("A2A_AGENT_DESCRIPTION",),
    )
    server: str = setting(
        "own",
        read.choice("own", "hypercorn"),
        "The HTTP server.",
        "hypercorn also supports HTTP/2, takes about twice the processor time for each call, and ignores max_connections.",
    )
    loop: str = setting(
        "auto",
        read.choice("auto", "uvloop", "asyncio"),
        "The event loop.",
        "auto uses uvloop where it is installed; asyncio is slower and easier to debug.",
    )

    @classmethod
    def of(cls, **values: object) -> Settings:
        """Settings from these values and the defaults alone: no environment, no file."""
        return load(values, env={}, file=None, search=False).settings

    def url(self, port: int | None = None) -> str:
        """The URL under which callers reach the hub; `port`: the port that is really bound."""
        if self.public_url is not None:
            return self.public_url
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"


SPECS: dict[str, Spec] = {item.name: item.metadata["spec"] for item in fields(Settings)}
_FIELDS: dict[str, Field[Any]] = {item.name: item for item in fields(Settings)}


def flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def default_text(key: str) -> str:
    """The default as shown in help texts."""
    return SPECS[key].default_text or read.shown(_FIELDS[key].default)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and, for each, where its value came from."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None

    def rows(self) -> list[tuple[str, str, str]]:
        """Key, value as shown to people (secrets masked), origin."""
        return [(key, self._shown(key), self.origins.get(key, "default")) for key in SPECS]

    def _shown(self, key: str) -> str:
        value = getattr(self.settings, key)
        return "***" if SPECS[key].secret and value is not None else read.shown(value)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
    search: bool = True,
) -> Loaded:
    """Read and validate every source. Raise one ConfigError that lists all problems.

    A flag that is None was not given. `file` must exist; without it ROLECALL_CONFIG or ./rolecall.toml is read.
    """
    env = os.environ if env is None else env
    problems: list[str] = []
    chosen = find_file(file, env, problems) if search or file else None
    given = from_file(chosen, list(SPECS), problems) if chosen else {}
    given |= from_env(env, {key: spec.aliases for key, spec in SPECS.items()}, problems)
    given |= {key: Given(value, f"flag {flag(key)}") for key, value in (flags or {}).items() if value is not None}
    values = _parse(given, problems)
    if "data_dir" not in given:
        values["data_dir"] = platform_data_dir(env, problems)
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
            f"lease_ttl ({ttl:g} s, {origins.get('lease_ttl', 'default')}), or every worker expires "
            "between two beats. Raise lease_ttl or lower heartbeat."
        )
