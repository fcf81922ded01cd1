"""A2A 0.3. Lenient in, strict out."""

from __future__ import annotations

VERSION = "0.3"
