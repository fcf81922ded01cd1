"""How many examples hypothesis tries: `make quick` sets QUICK_EXAMPLES and tries a quarter of them, `make test` all."""

from __future__ import annotations

import os

_PARTS = 4 if os.environ.get("QUICK_EXAMPLES") else 1


def examples(count: int) -> int:
    return max(count // _PARTS, 10)
