"""Every setting of the hub: its type, bounds, default, help texts and other names stand here, once.

A setting comes from, in this order: a flag, the environment (`ROLECALL_PORT`, or the file that `ROLECALL_PORT_FILE` names),
the file `rolecall.toml`, its default. Flags, help texts, error texts and the reference page are made from the fields below.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from hub.settings.agents import AgentSetting, read_file, read_table
from hub.settings.fields import Spec, quoted, refusal, shown, spec_of
from hub.settings.sources import RETIRED, Environment, TomlFile, chosen_file, suggestion
from hub.settings.values import (
    Choice,
    Hosts,
    Integer,
    LocalPath,
    Networks,
    PageOrigins,
    Role,
    Seconds,
    SecretKey,
    SigningSecret,
    Size,
    Switch,
    Text,
    Texts,
    Token,
    Url,
)
from rolecall.errors import ConfigError
from rolecall.setting import platform_folder, variable

__all__ = ["RETIRED", "SPECS", "Loaded", "Settings", "flag", "load", "variable"]

_HEARTBEAT = 45.0
_MOST = 10_000_000


def _default_heartbeat(before: Mapping[str, Any]) -> float:
    """Shorter than a short lease."""
    return min(_HEARTBEAT, before["lease_ttl"] * 0.375 or _HEARTBEAT)


def _default_connections(streams: str, more: int) -> Callable[[Mapping[str, Any]], int]:
    """One for each stream that the setting `streams` allows, and `more` for what else goes to workers."""
    return lambda before: min(before[streams] + more, _MOST)


class Settings(BaseSettings):
    """The hub's settings. `load` reads them; `Settings.of(port=0)` has these values and defaults alone.

    Below each setting is its help text: the first line says what it is, the rest what another value changes.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        case_sensitive=True,
        enable_decoding=False,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        validate_default=False,
    )

    host: Text = "127.0.0.1"
    """Address to listen on.
    0.0.0.0 or :: lets other machines call the hub; then name the workers' networks in worker_networks."""

    port: Integer = Field(8420, ge=0, le=65535)
    """Port to listen on.
    0 takes any free port. Commands and workers that are not told of a hub look for it at ROLECALL_PORT of this machine."""

    data_dir: LocalPath = Field(
        Path(), json_schema_extra={"default": "the platform's data folder, such as ~/.local/share/rolecall"}
    )
    """Folder for the database. One hub per folder, on a local disk.
    Another folder means another hub, with its own tasks, logs and leases."""

    store: Choice[Literal["sqlite", "memory:"]] = "sqlite"
    """Where state is kept: sqlite (in data_dir) or memory:.
    memory: loses all state when the hub stops."""

    public_url: Url | None = Field(None, json_schema_extra={"aliases": ["A2A_AGENT_URL"], "default": "made from host and port"})
    """The URL under which callers reach the hub. Every card contains it.
    Set it behind a proxy, or clients are sent to an address they cannot reach. If it is not loopback, the hub needs tokens."""

    allowed_origins: PageOrigins = ()
    """Origins of web pages, separated by commas, that may use the hub from a browser, such as https://app.example.com.
    Their pages can do what their users' tokens allow; on a hub without tokens, everything."""

    lease_ttl: Seconds = Field(120.0, ge=0, le=86_400, json_schema_extra={"aliases": ["A2A_AGENT_DISCOVERY_MAX_AGE"]})
    """How long a worker's registration lasts without a heartbeat.
    Lower: dead workers leave discovery sooner, and slow ones may leave it by mistake. 0: registrations never expire."""

    heartbeat: Seconds = Field(
        default_factory=_default_heartbeat,
        ge=0.05,
        le=3600,
        json_schema_extra={"default": "45, or three eighths of a shorter lease_ttl"},
    )
    """How often workers are asked to renew their lease.
    Lower: loads are known more exactly, at the cost of more requests. It must be shorter than lease_ttl."""

    worker_silence: Seconds = Field(60.0, ge=0.1, le=86_400)
    """How long a worker may give no sign of life during a task before the task fails.
    Higher: slow workers are tolerated, and hung ones are detected later."""

    default_role: Role | None = None
    """The role of calls that name none.
    Without it such calls get an error that lists the live roles."""

    card_version: Choice[Literal["0.3", "1.0"]] | None = None
    """Serve cards of this protocol version only.
    Set it for clients that fail on unknown members."""

    worker_networks: Networks = ()
    """Networks (CIDR, separated by commas) that workers' URLs may be in. Loopback is allowed while host is loopback.
    More networks: workers on more machines, and more addresses that the hub can be made to call."""

    max_body: Size = Field(16 * 1024 * 1024, ge=1024, le=1024**3)
    """Largest request body. What is above 64 KiB counts for max_message_memory.
    Higher: larger messages are accepted, and a caller can make the hub hold that much memory."""

    max_event: Size = Field(16 * 1024 * 1024, ge=64 * 1024, le=1024**3)
    """Largest event of a worker's stream. One that is larger fails its task. A worker's Task is bounded by max_log.
    Higher: larger files in one piece, and each of 16 events that arrive at once can hold that much memory."""

    inline_files: Switch = True
    """Whether callers, workers and webhooks that do not know files by reference get the bytes of files, up to max_event.
    false: they get the URL, which they have to read with their token; the hub reads and encodes no file for them."""

    max_head: Size = Field(32 * 1024, ge=4096, le=1024**2)
    """Largest total size of a request's headers.
    Higher: longer cookies and tokens are accepted, and every connection can hold twice that much memory."""

    max_card: Size = Field(64 * 1024, ge=1024, le=16 * 1024**2)
    """Largest card that a worker may enrol with, as JSON.
    Higher: more skills and texts fit, and each of max_agents workers can hold that much memory and disk."""

    card_refresh: Seconds = Field(300.0, ge=1, le=86_400)
    """How often the hub reads the card of a worker that enrolled with a URL alone again.
    Lower: changes of the card are seen sooner, at the cost of a request each."""

    max_depth: Integer = Field(100, ge=16, le=190)
    """How deep arrays and objects may be nested in a request's JSON.
    Higher: workers receive deeper JSON."""

    drain: Seconds = Field(30.0, ge=0, le=3600)
    """How long a stopping hub lets running calls finish.
    Lower: faster restarts, and more streams that must be resumed."""

    keep_alive: Seconds = Field(15.0, ge=0.05, le=600)
    """How often a quiet stream gets a comment, so that proxies do not cut it.
    Lower: streams survive stricter proxies, at the cost of more traffic."""

    connect_timeout: Seconds = Field(5.0, ge=0.05, le=120)
    """How long a connection to a worker may take.
    Lower: the hub gives up on a dead machine sooner, and may give up on a distant one by mistake."""

    retention: Seconds = Field(7 * 86_400.0, ge=1, le=10 * 365 * 86_400)
    """How long tasks and their logs are kept after their end.
    Higher: results can be fetched and streams resumed for longer, at the cost of disk space."""

    keep_summaries: Seconds = Field(30 * 86_400.0, ge=0, le=10 * 365 * 86_400)
    """How long after its end a summary of a task is kept: role, worker, state and times, without content. 0: none.
    Higher: longer history, for 300 bytes a task. No longer than retention: there are no summaries."""
    keep_usage: Seconds = Field(400 * 86_400.0, ge=86_400, le=10 * 365 * 86_400)
    """How long the sums of a day's usage are kept, by role, holder and model. They outlive the tasks.
    Higher: usage of longer ago can be read, at the cost of some disk space."""

    same_message: Seconds = Field(60.0, ge=0, le=86_400)
    """How long after its end a repeated message is recognised and gets the first answer again.
    Higher: later retries are safe, for more disk space. A message with an Idempotency-Key is known as long as its task."""

    max_open_tasks: Integer = Field(100_000, ge=1, le=10_000_000)
    """How many unfinished tasks the hub accepts.
    Higher: more memory and disk. At the limit new calls are refused with OVERLOADED."""

    max_open_tasks_per_workspace: Integer = Field(50_000, ge=1, le=10_000_000)
    """How many unfinished tasks one workspace may have. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_open_tasks. At the limit its new calls are refused with OVERLOADED."""

    max_pause: Seconds = Field(7 * 86_400.0, ge=1, le=10 * 365 * 86_400)
    """How long a task may wait for its caller's answer before it is dropped.
    Higher: questions stay open for longer, at the cost of disk space."""

    pause_grace: Seconds = Field(3600.0, ge=0.1, le=10 * 365 * 86_400)
    """How long a worker that has asked its caller something, and has lost its lease, may not answer before the task fails.
    Higher: a laptop may sleep for longer and then go on, and callers wait longer for one that never comes back."""

    task_deadline: Seconds = Field(0.0, ge=0, le=10 * 365 * 86_400)
    """How long a worker may work on one message before the task fails. 0: as long as it shows signs of life.
    Lower: endless work fails sooner, and long work is cut off."""

    max_log: Size = Field(64 * 1024 * 1024, ge=64 * 1024, le=1024**4)
    """Largest log of one task, and largest Task that a worker may answer with. A task that grows beyond it fails.
    Higher: larger answers, and one worker can fill that much disk per task."""

    max_log_events: Integer = Field(1_000_000, ge=100, le=1_000_000_000)
    """How many events one task's log may hold. One that grows beyond it fails.
    Higher: longer streams, and a task that takes longer to read: about 2 microseconds of a thread for each event."""

    max_disk: Size = Field(200 * 1024**3, ge=1024**2, le=1024**5)
    """How many bytes of tasks, messages, logs and files the hub stores.
    Higher: more disk. At the limit new calls are refused with OVERLOADED, and running tasks that need more fail."""

    max_disk_per_workspace: Size = Field(100 * 1024**3, ge=1024**2, le=1024**5)
    """How many bytes of tasks, messages, logs and files one workspace may store. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_disk. At the limit only its calls are refused, and its running tasks fail."""

    disk_reserve: Size = Field(256 * 1024**2, ge=0, le=1024**5)
    """How many bytes of the data folder's disk are kept free. 0: none.
    Below it new calls, answers, workers and files are refused with OVERLOADED; ends of tasks, withdrawals and beats pass."""

    max_file: Size = Field(2 * 1024**3, ge=0, le=1024**5)
    """Largest file that may be uploaded, to travel as a link. 0: the hub takes no files.
    Higher: larger files, each of which counts for max_disk_per_workspace."""

    file_grace: Seconds = Field(3600.0, ge=1, le=10 * 365 * 86_400)
    """How long a file is kept that no task has, or that is not complete, after bytes of it last came.
    Higher: uploads can go on, and files be sent, for longer, at the cost of disk space."""

    max_transfers: Integer = Field(256, ge=1, le=1_000_000)
    """How many uploads and downloads of files may be under way.
    Higher: more memory, up to 1 MiB for each. At the limit new ones are refused with OVERLOADED."""

    max_transfers_per_workspace: Integer = Field(128, ge=1, le=1_000_000)
    """How many uploads and downloads of files one workspace may have under way. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_transfers. At the limit its new ones are refused with OVERLOADED."""

    max_connections: Integer = Field(20_000, ge=1, le=10_000_000)
    """How many connections callers and workers may have open to the hub.
    Higher: more memory and descriptors. At the limit a new one, also for /livez, is answered with OVERLOADED and closed."""

    max_streams: Integer = Field(10_000, ge=1, le=10_000_000)
    """How many streams may be open to callers.
    Higher: more memory. At the limit new streams are refused with OVERLOADED."""

    max_streams_per_workspace: Integer = Field(5_000, ge=1, le=10_000_000)
    """How many streams may be open to the callers of one workspace. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_streams. At the limit its new streams are refused with OVERLOADED."""

    max_call_depth: Integer = Field(8, ge=1, le=1000)
    """How many levels of tasks may lie below a caller's own: tasks that tasks start, and so on.
    Higher: agents that call each other in a circle are stopped later."""

    max_tree_calls: Integer = Field(200, ge=1, le=100_000)
    """How many tasks may be started below a caller's task, on all levels together.
    Higher: an agent that calls others without end costs more before it is stopped."""

    max_waiting: Integer = Field(8_000, ge=1, le=10_000_000)
    """How many calls may wait for a worker (`metadata.waitSeconds`).
    Higher: more memory, about 16 KB for each. At the limit further calls do not wait and are refused with OVERLOADED."""

    max_waiting_per_workspace: Integer = Field(4_000, ge=1, le=10_000_000)
    """How many calls of one workspace may wait for a worker. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_waiting. At the limit its further calls are refused with OVERLOADED."""

    max_worker_connections: Integer = Field(
        default_factory=_default_connections("max_streams", 2_000),
        ge=1,
        le=_MOST,
        json_schema_extra={"default": "max_streams + 2000"},
    )
    """How many connections the hub may have open to workers. Each stream needs one, and so does each call until its answer.
    Higher: more memory and file descriptors. At the limit new calls are refused with OVERLOADED."""

    max_worker_connections_per_workspace: Integer = Field(
        default_factory=_default_connections("max_streams_per_workspace", 1_000),
        ge=1,
        le=_MOST,
        json_schema_extra={"default": "max_streams_per_workspace + 1000"},
    )
    """How many of these connections may be for the calls of one workspace. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_worker_connections. At the limit its new calls are refused with OVERLOADED."""

    max_connections_per_worker: Integer = Field(
        default_factory=_default_connections("max_streams_per_workspace", 500),
        ge=1,
        le=_MOST,
        json_schema_extra={"default": "max_streams_per_workspace + 500"},
    )
    """How many of these connections may be to one worker.
    Lower: a worker that hangs leaves its workspace more connections to others. At the limit, others of its role get calls."""

    reader_patience: Seconds = Field(30.0, ge=0.1, le=3600)
    """How long a caller may stop reading its stream before the hub drops it. The caller can resume from its cursor.
    Higher: slow networks are tolerated longer, and so are callers that stopped reading."""

    max_agents: Integer = Field(20_000, ge=1, le=10_000_000)
    """How many workers may be registered.
    Higher: more memory. At the limit new workers are refused with OVERLOADED."""

    max_agents_per_token: Integer = Field(5_000, ge=1, le=10_000_000)
    """How many workers one holder of tokens may have registered.
    Higher: one holder can fill more of max_agents. Beyond it: 429. Without tokens it does not apply."""

    max_rate: Integer = Field(1_000, ge=0, le=10_000_000)
    """How many calls a second one holder of tokens may make, with twice that in a burst. 0: any number.
    Higher: one caller can take more of the hub. Beyond it: 429. Without tokens it does not apply."""

    max_at_once: Integer = Field(2_000, ge=0, le=10_000_000)
    """How many calls of one holder of tokens may be under way, streams included. 0: any number.
    Higher: one caller can hold more of the hub's memory. Beyond it: 429."""

    max_message_memory: Size = Field(256 * 1024 * 1024, ge=1024 * 1024, le=1024**4)
    """How many bytes of large messages calls under way may hold in memory. One that waits for its worker holds it three times.
    Higher: more memory. At the limit calls with more than 64 KiB are refused with OVERLOADED."""

    max_message_memory_per_workspace: Size = Field(128 * 1024 * 1024, ge=1024 * 1024, le=1024**4)
    """How many of these bytes one workspace may hold. Without tokens there is one workspace.
    Higher: one workspace can fill more of max_message_memory. At the limit its large calls are refused with OVERLOADED."""

    max_batch: Integer = Field(50, ge=0, le=1000)
    """How many calls one JSON-RPC batch may hold. 0: batches are refused.
    Higher: one request can start that much work. Each call counts for max_rate and max_at_once."""

    max_batch_answer: Size = Field(8 * 1024 * 1024, ge=64 * 1024, le=1024**3)
    """Largest answer to one JSON-RPC batch. When an answer does not fit, the calls that have not begun are not made.
    Higher: more results fit, and one request can make the hub hold that much memory."""

    max_unsent: Size = Field(64 * 1024 * 1024, ge=1024**2, le=1024**4)
    """Memory for large answers (64 KiB and more) that are being made, or that callers have not taken yet.
    Higher: slow callers can have more answers under way, for that much memory. At the limit: OVERLOADED."""

    max_unsent_per_workspace: Size = Field(32 * 1024 * 1024, ge=64 * 1024, le=1024**4)
    """The part of max_unsent for the callers of one workspace. An answer that is larger is sent when it is the only one.
    Higher: one workspace can fill more of max_unsent. At the limit its large answers are refused with OVERLOADED."""

    push_allowed_hosts: Hosts = Field((), json_schema_extra={"aliases": ["PUSH_NOTIFICATION_ALLOWED_HOSTS"]})
    """Hosts, separated by commas, that webhooks may go to at any address, port and scheme.
    Callers can make the hub call these names. Every other webhook must be https to a public address."""

    push_allowed_cidrs: Texts = Field((), json_schema_extra={"aliases": ["PUSH_NOTIFICATION_ALLOWED_CIDRS"]})
    """Networks (CIDR, separated by commas) that webhooks may go to on any port, also with plain http.
    Callers can make the hub call every address in them. An invalid network is ignored with a warning; config validate fails."""

    push_retry: Seconds = Field(86_400.0, ge=1, le=7 * 86_400)
    """How long a failing webhook is retried before an event becomes a dead letter.
    Higher: longer outages of receivers are bridged, and tasks are kept that much longer."""

    max_push_configs: Integer = Field(10, ge=1, le=1000)
    """How many webhooks one task may have.
    Higher: one call can make the hub send that many requests for each event."""

    admin_token: Token | None = Field(None, repr=False)
    """A token with every right. `rolecall tokens new` makes tokens with fewer rights.
    With any token set, every request except those for cards and health must carry one."""

    tokens: LocalPath | None = Field(None, json_schema_extra={"default": "tokens.json in data_dir"})
    """The token file that `rolecall tokens` writes.
    Another file has other tokens. The hub reads it again when it changes."""

    webhook_secret: SigningSecret | None = Field(None, repr=False)
    """The secret (whsec_…) that webhooks are signed with, as in Standard Webhooks.
    Receivers that know it can distinguish the hub's notifications from forged ones."""

    secret_key: SecretKey | None = Field(
        None, json_schema_extra={"default": "created once, as secret.key in data_dir"}, repr=False
    )
    """The key that encrypts callers' stored secrets: random text of at least 32 characters.
    With another key, secrets stored before cannot be read, and their webhooks fail."""

    audit_log: LocalPath | None = Field(None, json_schema_extra={"default": "no trail is kept"})
    """File of the audit trail: who enrolled, sent, cancelled and erased, who was refused, and which tokens changed.
    One JSON line per entry, never message contents. It only grows: rename it, and the hub begins a new one."""

    audit_required: Switch = False
    """Whether the hub does nothing that it cannot record in audit_log. Such a request is recorded before it begins, too.
    true: while the file cannot be written, all requests but cards, health, reads and heartbeats get OVERLOADED."""

    log_level: Choice[Literal["debug", "info", "warning", "error"]] = "info"
    """The lowest level that is logged.
    debug logs every heartbeat."""

    log_format: Choice[Literal["auto", "console", "json"]] = "auto"
    """The format of log lines.
    auto: console on a terminal, one JSON object per line elsewhere."""

    quarantine: Switch = False
    """Whether the hub calls nobody and takes no calls, workers or changes: to look at a restored copy beside the hub itself.
    true: tasks, logs and files can be read; no worker, agent or webhook hears of it, and nothing is deleted for its age."""

    name: Text = Field("Rolecall", json_schema_extra={"aliases": ["A2A_AGENT_NAME"]})
    """The hub's name on its card.
    Clients and people see it; it does not affect routing."""

    description: Text = Field(
        "Routes each message to a live worker of the role it names.", json_schema_extra={"aliases": ["A2A_AGENT_DESCRIPTION"]}
    )
    """The hub's description on its card.
    Clients and people see it; it does not affect routing."""

    tls_cert: LocalPath | None = Field(None, json_schema_extra={"default": "plain http"})
    """The hub's certificate, and those that sign it behind it, as a PEM file. The hub then serves https, and nothing else.
    The file is read again when it changes; while it cannot be used, the certificate before it stays."""

    tls_key: LocalPath | None = Field(None, json_schema_extra={"default": "plain http"})
    """The key of tls_cert, as a PEM file. It must not be encrypted.
    Whoever can read it can pose as the hub."""

    ca_file: LocalPath | None = Field(None, json_schema_extra={"default": "the system's authorities alone"})
    """A PEM file of authorities that the hub trusts beside the system's, where it calls https: workers, agents, hubs, webhooks.
    Whoever has a key of theirs can pose as any of these. Clients and workers read the variable too, for an https hub. It is
    read at the start."""

    http2: Switch = False
    """Whether clients with TLS are offered HTTP/2.
    true: such a call takes about half as much processor time again, and a client can take more of it (SECURITY.md)."""

    loop: Choice[Literal["auto", "uvloop", "asyncio"]] = "auto"
    """The event loop.
    auto uses uvloop where it is installed, which is never on Windows; asyncio is slower and easier to debug."""

    @classmethod
    def of(cls, **values: object) -> Settings:
        """Settings from these values and the defaults alone: no environment, no file."""
        return load(values, env={}, search=False).settings

    def url(self, port: int | None = None) -> str:
        """The URL under which callers reach the hub; `port`: the port that is really bound."""
        if self.public_url is not None:
            return self.public_url
        host = socket.gethostname() if self.host in ("0.0.0.0", "::", "") else self.host
        scheme = "http" if self.tls_cert is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port if port is None else port}"

    @field_validator("*", mode="wrap")
    @classmethod
    def _refuse(cls, value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        """One error for each wrong value, with our text in place of pydantic's. A secret is not in it."""
        try:
            return validate(value)
        except ValidationError as error:
            first, spec = error.errors(include_url=False)[0], SPECS[str(info.field_name)]
            if first["type"] == "refused":
                raise refusal(first["msg"]) from None
            # What pydantic was given may be converted already, but in a list it is the item that is wrong.
            wrong = "" if spec.secret else f", not {quoted(first['input'] if first['loc'] else value)}"
            raise refusal(f"must be {spec.expected}{wrong}") from None

    @field_validator("heartbeat")
    @classmethod
    def _check_heartbeat(cls, heartbeat: float, info: ValidationInfo) -> float:
        ttl = info.data.get("lease_ttl", 0)
        if 0 < ttl <= heartbeat:
            raise PydanticCustomError(
                "conflict",
                f"heartbeat ({heartbeat:g} s, {{heartbeat}}) must be shorter than lease_ttl ({ttl:g} s, {{lease_ttl}}), or "
                "every worker expires between two beats. Raise lease_ttl or lower heartbeat.",
            )
        return heartbeat

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Those that `load` made, of which the first with a value wins. Without them the arguments are the only source.

        Left to itself pydantic-settings reads this process's environment at each `Settings(…)`, and keeps no origins.
        """
        sources: tuple[PydanticBaseSettingsSource, ...] = init_settings().get("_sources", (init_settings,))
        return sources


SPECS: dict[str, Spec] = {key: spec_of(field) for key, field in Settings.model_fields.items()}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings and, for each, where its value came from."""

    settings: Settings
    origins: dict[str, str]
    file: Path | None
    agents: Sequence[AgentSetting] = ()

    def read_agents(self) -> Sequence[AgentSetting]:
        """Read `[[agents]]` of the file again, and nothing else of it. ConfigError."""
        return read_file(self.file)

    def rows(self) -> list[tuple[str, str, str]]:
        """Key, value as shown to people (secrets masked), origin."""
        return [(key, self._shown(key), self.origins.get(key, "default")) for key in SPECS]

    def _shown(self, key: str) -> str:
        value = getattr(self.settings, key)
        return "***" if SPECS[key].secret and value is not None else shown(value)


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
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    path, folder = chosen_file(file, env) if search or file else None, platform_folder(env)
    environment, toml = Environment(Settings, env), TomlFile(Settings, path)
    default = InitSettingsSource(Settings, {"data_dir": folder} if folder else {})
    settings, errors = _validated(InitSettingsSource(Settings, given), environment, toml, default)
    origins = toml.origins | environment.origins | {key: f"flag {flag(key)}" for key in given}
    agents, wrong_agents = read_table(*toml.agents, path) if path is not None else ((), [])
    problems = [*toml.problems, *environment.problems, *_problems(errors, origins), *wrong_agents]
    if folder is None and "data_dir" not in origins:
        problems.append("data_dir: this user has no home directory. Set ROLECALL_DATA_DIR.")
    if ("tls_cert" in origins) != ("tls_key" in origins):
        one, other = ("tls_cert", "tls_key") if "tls_cert" in origins else ("tls_key", "tls_cert")
        problems.append(f"{other}: is missing. {one} ({origins[one]}) needs it.")
    if settings is not None and settings.audit_required and settings.audit_log is None:
        problems.append(f"audit_log: is missing. audit_required ({origins['audit_required']}) needs it.")
    if settings is None or problems:
        raise ConfigError(problems)
    if "heartbeat" not in origins and settings.heartbeat != _HEARTBEAT:
        origins["heartbeat"] = "derived from lease_ttl"
    return Loaded(settings, origins, path, agents)


def flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _validated(*sources: PydanticBaseSettingsSource) -> tuple[Settings | None, list[ErrorDetails]]:
    values: dict[str, Any] = {"_sources": sources}
    try:
        return Settings(**values), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _problems(errors: Sequence[ErrorDetails], origins: Mapping[str, str]) -> Iterator[str]:
    """pydantic's errors as text for people, in the order of the sources."""
    wrong = {str(error["loc"][0]): error for error in errors}
    for key in sorted(wrong, key=[*origins, *SPECS].index):
        kind, text, origin = wrong[key]["type"], wrong[key]["msg"], origins.get(key, "default")
        if kind == "extra_forbidden":
            yield f'{origin}: unknown key "{key}".{suggestion(key, list(SPECS))}'
        elif kind == "conflict":
            yield text.format_map({other: origins.get(other, "default") for other in SPECS})
        elif kind != "default_factory_not_called":  # a default depends on a wrong value, which has its own error
            yield f"{key}: {text} ({origin})"
