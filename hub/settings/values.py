"""The types of settings, for pydantic.

By hand is what pydantic does not read: its `timedelta` knows no `90s`, its sizes no `64k`, its URL types rewrite the
text, and it splits no text at commas.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Strict, StringConstraints

from hub.settings.fields import Expected, quoted, refusal
from rolecall.model.ids import is_role
from rolecall.protocol.text.origin import read_origin

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"": 1.0, "b": 1.0, "k": 2.0**10, "kib": 2.0**10, "m": 2.0**20, "mib": 2.0**20, "g": 2.0**30, "gib": 2.0**30}
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)")


def _of_text(read: Callable[[str], Any]) -> BeforeValidator:
    """Reads text; what TOML gives as another type is left as it is."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _amount(text: str, units: Mapping[str, float]) -> float:
    found = _AMOUNT.fullmatch(text.strip().lower().replace("_", ""))
    if found is None or found[2] not in units:
        raise ValueError
    return float(found[1]) * units[found[2]]


def _items(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _path(text: str) -> Path:
    if not text.strip():
        raise ValueError
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:
        raise refusal(f"names an unknown home directory: {quoted(text)}") from None


def _url(text: str) -> str:
    parts = urlsplit(text)
    rest = parts.query or parts.fragment or any(character.isspace() for character in text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or rest:
        raise ValueError
    if parts.username is not None:
        raise refusal("must not hold a user or password: use ROLECALL_TOKEN")
    return text.rstrip("/")


def _origin(text: str) -> str:
    origin = text.lower().rstrip("/")
    if read_origin(origin) is None:
        raise ValueError
    return origin


def _host(text: str) -> str:
    """A name or an address as it stands in a URL, without what stands around it there."""
    name = text.strip("[]")
    if not name or any(character in name for character in "/@?#") or (":" in name and not _is_address(name)):
        raise ValueError
    return text


def _is_address(text: str) -> bool:
    try:
        return bool(IPv6Address(text))
    except ValueError:
        return False


def _role(text: str) -> str:
    if not is_role(text):
        raise ValueError
    return text


def _signing_secret(text: str) -> str:
    if not text.startswith("whsec_") or not 24 <= len(base64.b64decode(text.removeprefix("whsec_"), validate=True)) <= 64:
        raise ValueError
    return text


def below(folder: Path, value: Any) -> Any:
    """What a file in that folder means by a path. What is none stays as it is, and is refused later."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return str(folder / Path(value.strip()).expanduser())
    except RuntimeError:
        return value


_Option = TypeVar("_Option")
Choice = Annotated[_Option, _of_text(lambda text: text.strip().lower())]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), Expected("text")]
Role = Annotated[Text, AfterValidator(_role), Expected("a role (lowercase letters, digits, . _ -; not a reserved word)")]
Url = Annotated[Text, AfterValidator(_url), Expected("an http or https URL such as https://hub.example.com")]
PATH = Expected("a path")
LocalPath = Annotated[Path, _of_text(_path), PATH]

Switch = Annotated[bool, Expected("true or false")]
Integer = Annotated[int, Strict(), _of_text(int), Expected("a whole number from {ge} to {le}")]
Seconds = Annotated[
    float,
    Strict(),
    _of_text(lambda text: _amount(text, _SECONDS)),
    Expected("{ge:.10g} to {le:.10g} seconds (also 500ms, 90s, 5m, 24h, 7d)", "seconds"),
]
Size = Annotated[
    int,
    Strict(),
    BeforeValidator(lambda value: int(value) if isinstance(value, float) and math.isfinite(value) else value),
    _of_text(lambda text: int(_amount(text, _BYTES))),
    Expected("{ge} to {le} bytes (also 512KiB, 4MiB)", "bytes"),
]

Texts = Annotated[tuple[str, ...], _of_text(_items), Expected("names, each as text")]
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_host)], ...],
    _of_text(_items),
    Expected("hosts such as receiver.internal, without scheme and port"),
]
Networks = Annotated[
    # Of text alone: to pydantic the number 3 is the network 0.0.0.3/32.
    tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(str)], ...],
    _of_text(_items),
    Expected("networks such as 10.0.0.0/8 or fd00::/8"),
]
PageOrigins = Annotated[
    tuple[Annotated[str, AfterValidator(_origin)], ...],
    _of_text(_items),
    Expected("origins such as https://app.example.com or http://localhost:5173"),
]

Token = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=16, pattern="^[!-~]+$"),
    Expected("at least 16 visible ASCII characters; `rolecall tokens new` makes a good one"),
]
SigningSecret = Annotated[Text, AfterValidator(_signing_secret), Expected("whsec_ and 24 to 64 bytes in Base64")]
SecretKey = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=32),
    Expected("text of at least 32 characters, such as the output of `openssl rand -base64 32`"),
]
