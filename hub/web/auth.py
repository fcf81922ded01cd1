"""Who is asking. Bound to loopback, everybody is the one local caller."""

from __future__ import annotations

from hub.model.ids import Caller

LOCAL = Caller("default", "local")
