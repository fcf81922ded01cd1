"""A2A 1.0: ProtoJSON over JSON-RPC and REST. Lenient in, strict out."""

from __future__ import annotations

VERSION = "1.0"
