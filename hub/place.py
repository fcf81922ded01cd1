"""Where the hub listens, under which names callers reach it, and whether others than this machine can."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from hub.settings.model import Settings, variable
from rolecall.model.ids import is_loopback

_MAKE_TOKEN = f"Make one: rolecall tokens new --kind admin --name me, or set {variable('admin_token')}"
_PUBLIC = f"public_url says that others call the hub at {{url}}, and there are no tokens. {_MAKE_TOKEN}; or unset public_url."
_EXPOSED = f"host {{host}} lets other machines call the hub, and there are no tokens. {_MAKE_TOKEN}; or listen on 127.0.0.1."
_UNKNOWN = (
    "the hub cannot know which address another server listens on, and there are no tokens. "
    f"{_MAKE_TOKEN}. For callers on this machine only, set {variable('host')}=127.0.0.1, and let the server listen there."
)


@dataclass(frozen=True, slots=True)
class Place:
    """`url`: under which callers reach the hub. `on_loopback`: only this machine can connect. `exposed`: callers elsewhere may
    be able to reach it, also through a proxy here.
    """

    host: str
    port: int
    url: str
    public_url: str | None
    on_loopback: bool
    exposed: bool

    @classmethod
    def of(cls, settings: Settings, port: int | None) -> Place:
        """`port` None: another server listens. Of its address the hub knows only what its operator says: that `host` is
        loopback.
        """
        host, public_url = settings.host, settings.public_url
        on_loopback = is_loopback(host) and (port is not None or "host" in settings.model_fields_set)
        exposed = not on_loopback or (public_url is not None and not is_loopback(_name_in(public_url)))
        own_port = settings.port if port is None else port
        return cls(host, own_port, settings.url(port), public_url, on_loopback, exposed)

    @property
    def why_tokens(self) -> str:
        """Why an exposed hub without tokens does not start."""
        if not is_loopback(self.host):
            return _EXPOSED.format(host=self.host)
        return _PUBLIC.format(url=self.public_url) if self.on_loopback else _UNKNOWN

    @property
    def own_addresses(self) -> Sequence[tuple[str, int]]:
        """The hub's own names and ports. The hub never calls them, whatever address they resolve to."""
        public = urlsplit(self.url)
        usual = (443 if public.scheme == "https" else 80) if public.port is None else public.port
        ports = (80, 443) if usual in (80, 443) else (usual,)
        here = [self.host, "localhost" if is_loopback(self.host) else socket.gethostname()]
        return [*((name, self.port) for name in here), *((public.hostname or "", port) for port in ports)]

    @property
    def hosts(self) -> Sequence[str]:
        """The Host names that a hub on loopback accepts. Any other one is DNS rebinding: another site uses the browser."""
        if not self.on_loopback:
            return ()
        names = ("localhost", "127.0.0.1", "::1", self.host, _name_in(self.public_url or ""))
        return [f"[{name}]" if ":" in name else name for name in names if name]


def _name_in(url: str) -> str:
    return urlsplit(url).hostname or ""
