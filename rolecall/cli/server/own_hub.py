"""A hub that `up` or `dev` starts: a process of its own, with the settings of `rolecall serve`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from hub.settings.model import Settings, variable
from rolecall.cli.console.programs import LOG_FORMAT, OUTPUT, Program, own_command
from rolecall.cli.server.settings import load_settings
from rolecall.cli.server.socket_errors import socket_errors
from rolecall.model.ids import is_loopback
from rolecall.model.principal import Kind, Principal
from rolecall.system.sockets import bound_socket

HOLDER = "rolecall-up"
"""The holder of the token that the hub's workers get."""
_MORE_THAN_DRAIN = 15.0
_HERE = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


class OwnHub:
    """`file` and `flags`: as for `rolecall serve`. The hub is no more talkative than warnings unless a source says so."""

    name = "hub"

    def __init__(self, file: Path | None, flags: Mapping[str, Any]) -> None:
        loaded = load_settings(file, dict(flags))
        if "log_level" not in loaded.origins:
            flags = {**flags, "log_level": "warning"}
            loaded = load_settings(file, dict(flags))
        self.settings: Settings = loaded.settings
        self._loaded = loaded
        self._file = file
        self._flags = flags
        # Chosen now and kept: the workers find a hub that is started again at the same address.
        self._port = self.settings.port or free_port(self.settings.host)
        self.url = _local_url(self.settings, self._port)

    @property
    def place(self) -> str:
        """Where its state is."""
        return f"data: {self.settings.data_dir}" if self.settings.store == "sqlite" else f"store: {self.settings.store}"

    @property
    def any_port(self) -> bool:
        return self.settings.port == 0

    def check_port(self) -> None:
        """CommandError: something else listens there, or this user may not."""
        with socket_errors(self.settings):
            bound_socket(self.settings.host, self._port).close()

    def program(self) -> Program:
        words = ("serve", "--config", str(self._file)) if self._file is not None else ("serve",)
        return Program(
            name=self.name,
            argv=own_command(*words),
            cwd=Path.cwd(),
            env=self._environment(),
            drain=self.settings.drain + _MORE_THAN_DRAIN,
            final={2: "its settings are wrong"},
        )

    @contextmanager
    def worker_token(self) -> Iterator[str | None]:
        """A token that may enrol workers of any role, and is revoked at the end. For a hub that asks for tokens."""
        from hub.identity.tokens import FILE_NAME, new, revoke

        path = self.settings.tokens
        if path is None and self.settings.store == "sqlite":
            path = self.settings.data_dir / FILE_NAME
        if path is None:  # a hub that keeps nothing knows this one alone
            yield self.settings.admin_token
            return
        revoke(path, HOLDER)  # what one that was killed has left
        token, _ = new(path, Principal(HOLDER, Kind.WORKER, roles=("*",)), lasts=None, now=time.time())
        try:
            yield token
        finally:
            revoke(path, HOLDER)

    @property
    def token_command(self) -> str:
        """The command that sets a token for callers of a hub that asks for one. It never contains a token."""
        if sys.platform == "win32":  # as its newer shell takes it
            export, known = "$env:ROLECALL_TOKEN = ", "$env:ROLECALL_ADMIN_TOKEN"
        else:
            export, known = "export ROLECALL_TOKEN=", '"$ROLECALL_ADMIN_TOKEN"'
        return export + (known if self.settings.admin_token is not None else "…    (rolecall tokens new --name me)")

    def _environment(self) -> dict[str, str]:
        """That of this process, where flags become variables: a secret is not shown in a list of processes."""
        values = {key: str(value) for key, value in self._flags.items() if value is not None}
        values["port"] = str(self._port)
        if "log_format" not in self._loaded.origins:
            values["log_format"] = LOG_FORMAT
        if not is_loopback(self.settings.host):
            # The workers run on this machine, although the hub listens to the network.
            values["worker_networks"] = ",".join(str(network) for network in (*self.settings.worker_networks, *_HERE))
        replaced = {f"{variable(key)}_FILE" for key in values}
        kept = {name: value for name, value in os.environ.items() if name not in replaced}
        return {**kept, **OUTPUT, **{variable(key): value for key, value in values.items()}}


def free_port(host: str) -> int:
    with bound_socket(host, 0) as probe:
        return int(probe.getsockname()[1])


def _local_url(settings: Settings, port: int) -> str:
    """The hub's address on this machine, which may differ from its public URL. With TLS it is the one that cards name: the
    certificate need not be for another.
    """
    if settings.tls_cert is not None:
        return settings.url(port)
    if settings.host in ("0.0.0.0", "::"):
        return f"http://[::1]:{port}" if settings.host == "::" else f"http://127.0.0.1:{port}"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}"
