"""How a setting's value is read from text or TOML, and shown. The message of a ValueError is shown to people."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from dataclasses import field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rolecall.model.ids import is_role

Reader = Callable[[object], Any]

_DURATION = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = {"": 1, "b": 1, "k": 1024, "kib": 1024, "m": 1024**2, "mib": 1024**2, "g": 1024**3, "gib": 1024**3}
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)")


class Spec(NamedTuple):
    """A setting's help texts, and how its value is read."""

    reader: Reader
    about: str
    effect: str
    unit: str
    aliases: tuple[str, ...]
    default_text: str | None
    secret: bool


def setting(
    default: Any,
    reader: Reader,
    about: str,
    effect: str,
    *,
    unit: str = "",
    aliases: tuple[str, ...] = (),
    default_text: str | None = None,
    secret: bool = False,
) -> Any:
    spec = Spec(reader, about, effect, unit, aliases, default_text, secret)
    return field(default=default, metadata={"spec": spec}, repr=not secret)


def text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, not {value!r}")
    return value.strip()


def choice(*allowed: str) -> Reader:
    def reader(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise ValueError(f"must be {' or '.join(allowed)}, not {value!r}")

    return reader


def whole(low: int, high: int) -> Reader:
    def reader(value: object) -> int:
        try:
            number = int(value.strip().replace("_", "")) if isinstance(value, str) else value
        except ValueError:
            number = None
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {value!r}")
        return number

    return reader


def seconds(low: float, high: float) -> Reader:
    def reader(value: object) -> float:
        number = _amount(value, _DURATION)
        if number is None or not low <= number <= high:
            raise ValueError(f"must be {low:g} to {high:g} seconds (also 500ms, 90s, 5m, 24h, 7d), not {value!r}")
        return number

    return reader


def size(low: int, high: int) -> Reader:
    def reader(value: object) -> int:
        number = _amount(value, _SIZE)
        if number is None or not low <= number <= high:
            raise ValueError(f"must be {low} to {high} bytes (also 512KiB, 4MiB), not {value!r}")
        return int(number)

    return reader


def _amount(value: object, units: dict[str, Any]) -> float | None:
    if isinstance(value, str):
        found = _AMOUNT.fullmatch(value.strip().lower().replace("_", ""))
        return float(found.group(1)) * units[found.group(2)] if found and found.group(2) in units else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    try:
        return Path(text(value)).expanduser()
    except RuntimeError:
        raise ValueError(f"names an unknown home directory: {value!r}") from None


def url(value: object) -> str:
    plain = text(value)
    try:
        parts = urlsplit(plain)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or any(character.isspace() for character in plain):
        raise ValueError(f"must be an http or https URL such as https://hub.example.com, not {masked(plain)!r}")
    if parts.username is not None:
        raise ValueError("must not hold a user or password: use ROLECALL_TOKEN")
    return plain.rstrip("/")


def role(value: object) -> str:
    plain = text(value)
    if not is_role(plain):
        raise ValueError(f"must be a role (lowercase letters, digits, . _ -; not a reserved word), not {value!r}")
    return plain


def store(value: object) -> str:
    plain = text(value)
    if plain not in ("sqlite", "memory:"):
        raise ValueError(f"must be sqlite or memory:, not {masked(plain)!r}")
    return plain


def networks(value: object) -> tuple[IPv4Network | IPv6Network, ...]:
    items = [item for item in value.replace(",", " ").split() if item] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"must be a list of networks such as 10.0.0.0/8, not {value!r}")
    found = []
    for item in items:
        try:
            found.append(ip_network(str(item)))
        except ValueError:
            raise ValueError(f"must hold networks such as 10.0.0.0/8 or fd00::/8, not {str(item)!r}") from None
    return tuple(found)


def names(value: object) -> tuple[str, ...]:
    items = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"must be a list of names, not {value!r}")
    return tuple(items)


def webhook_secret(value: object) -> str:
    """The error text does not contain the secret."""
    plain = value.strip() if isinstance(value, str) else ""
    try:
        size = len(base64.b64decode(plain.removeprefix("whsec_"), validate=True))
    except ValueError:
        size = 0
    if not plain.startswith("whsec_") or not 24 <= size <= 64:
        raise ValueError("must be whsec_ and 24 to 64 bytes in Base64")
    return plain


def secret_key(value: object) -> str:
    plain = value.strip() if isinstance(value, str) else ""
    if len(plain) < 32:
        raise ValueError("must be text of at least 32 characters, such as the output of `openssl rand -base64 32`")
    return plain


def token(value: object) -> str:
    plain = value.strip() if isinstance(value, str) else ""
    if len(plain) < 16 or not plain.isascii() or not plain.isprintable() or " " in plain:
        raise ValueError("must be at least 16 visible ASCII characters; `rolecall tokens new` makes a good one")
    return plain


def shown(value: object) -> str:
    """A value as people would write it, with passwords masked."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return masked(str(value))


def masked(value: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]*@", "***@", value)
