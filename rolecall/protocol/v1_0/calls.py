"""Calls to a worker in 1.0."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import Ids, JsonObject
from rolecall.model.card import HTTP_JSON, JSONRPC
from rolecall.protocol.v1_0 import VERSION

BINDINGS: tuple[str, ...] = (JSONRPC, HTTP_JSON)
SEND, STREAM, GET, CANCEL, SUBSCRIBE = "SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask"


def send_params(params: JsonObject, message: JsonObject, *, stream: bool) -> JsonObject:
    """The caller's params with that message. Push configs and the history's length are removed: the hub sends notifications
    itself, and cuts the history for one reader only. The tenant named the hub's role.
    """
    sent = {**params, "message": message}
    sent.pop("tenant", None)
    configuration = {**(params.get("configuration") or {})}
    configuration.pop("taskPushNotificationConfig", None)
    configuration.pop("historyLength", None)
    configuration.pop("returnImmediately", None)
    if not stream:
        configuration["returnImmediately"] = True
    if configuration:
        sent["configuration"] = configuration
    else:
        sent.pop("configuration", None)
    return sent


def foreign_params(message: JsonObject, metadata: JsonObject, modes: list[str], *, stream: bool) -> JsonObject:
    """Params for a message from another dialect."""
    configuration: JsonObject = {"acceptedOutputModes": modes} if modes else {}
    if not stream:
        configuration["returnImmediately"] = True
    sent: JsonObject = {"message": message}
    if configuration:
        sent["configuration"] = configuration
    if metadata:
        sent["metadata"] = metadata
    return sent


def task_params(ids: Ids) -> JsonObject:
    return {"id": ids.worker_task}


def headers(extensions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    version = ("A2A-Version", VERSION)
    return (version, ("A2A-Extensions", ", ".join(extensions))) if extensions else (version,)
