"""A2A 0.1, the names before tasks had contexts and messages had ids. Still spoken by callers; lenient in, strict out."""

from __future__ import annotations

VERSION = "0.1"
