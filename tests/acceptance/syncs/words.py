"""Unique words that can be found in any bytes."""

from __future__ import annotations

import re
import secrets

WORD = re.compile(rb"word-[0-9a-f]{16}")


def word() -> str:
    return f"word-{secrets.token_hex(8)}"
