"""Calls to a worker in 0.3."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import Ids, JsonObject
from rolecall.model.card import JSONRPC

# Its REST has no single form.
BINDINGS: tuple[str, ...] = (JSONRPC,)
SEND, STREAM, GET, CANCEL, SUBSCRIBE = "message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"


def send_params(params: JsonObject, message: JsonObject, *, stream: bool) -> JsonObject:
    """The caller's params with that message. Push configs and the history's length are removed: the hub sends notifications
    itself, and cuts the history for one reader only.
    """
    sent = {**params, "message": message}
    configuration = {**(params.get("configuration") or {})}
    configuration.pop("pushNotificationConfig", None)
    configuration.pop("historyLength", None)
    if not stream:
        configuration["blocking"] = False
    if configuration:
        sent["configuration"] = configuration
    else:
        sent.pop("configuration", None)
    return sent


def foreign_params(message: JsonObject, metadata: JsonObject, modes: list[str], *, stream: bool) -> JsonObject:
    """Params for a message from another dialect."""
    configuration: JsonObject = {"acceptedOutputModes": modes} if modes else {}
    if not stream:
        configuration["blocking"] = False
    sent: JsonObject = {"message": message}
    if configuration:
        sent["configuration"] = configuration
    if metadata:
        sent["metadata"] = metadata
    return sent


def task_params(ids: Ids) -> JsonObject:
    return {"id": ids.worker_task}


def headers(extensions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """0.3 has no version header, and another name for the extensions header."""
    return (("X-A2A-Extensions", ", ".join(extensions)),) if extensions else ()
