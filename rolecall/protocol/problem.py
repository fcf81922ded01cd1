"""RFC 9457: the error bodies of the hub's own APIs."""

from __future__ import annotations

from typing import Any

from rolecall.protocol.faults import Fault
from rolecall.protocol.text.jsontext import dump


def problem_body(fault: Fault, **members: Any) -> bytes:
    title = fault.reason.replace("_", " ").capitalize()
    return problem_document(fault.status, title, fault.message, fault.reason, **members)


def problem_document(status: int, title: str, detail: str, reason: str, **members: Any) -> bytes:
    return dump({"type": "about:blank", "title": title, "status": status, "detail": detail, "reason": reason, **members})
