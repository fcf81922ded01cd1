"""RFC 9457: how our own APIs say that something went wrong."""

from __future__ import annotations

from typing import Any

from rolecall.protocol.faults import Fault
from rolecall.protocol.text.jsontext import dump


def problem_body(fault: Fault, **members: Any) -> bytes:
    title = fault.reason.replace("_", " ").capitalize()
    return dump(
        {
            "type": "about:blank",
            "title": title,
            "status": fault.status,
            "detail": fault.message,
            "reason": fault.reason,
            **members,
        }
    )
