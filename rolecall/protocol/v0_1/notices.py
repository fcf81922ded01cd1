"""Webhook notifications in 0.1: one status or one artifact."""

from __future__ import annotations

from rolecall.model.a2a import JsonObject


def notice_in_oldest(event: JsonObject) -> JsonObject:
    """From a frame of the stream."""
    if "artifact" in event:
        return {"taskId": event["id"], "eventType": "artifact", "artifact": event["artifact"]}
    status = event["status"]
    return {
        "taskId": event["id"],
        "eventType": "status",
        "status": status,
        "timestamp": status.get("timestamp"),
        **({"artifacts": event["artifacts"]} if event.get("artifacts") else {}),
    }
