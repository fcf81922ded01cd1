"""A2A 0.1: tasks have no contexts and messages no ids. Callers still use it; lenient in, strict out."""

from __future__ import annotations

VERSION = "0.1"
