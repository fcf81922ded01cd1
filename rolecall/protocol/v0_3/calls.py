"""What a worker is told in 0.3."""

from __future__ import annotations

from rolecall.model.a2a import Ids, JsonObject

SEND, STREAM, GET, CANCEL, SUBSCRIBE = "message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"


def send_params(params: JsonObject, message: JsonObject, *, stream: bool) -> JsonObject:
    """The caller's own params around the message. Push is the hub's, no worker hears of a webhook; and so is the history,
    which is cut for its reader and kept whole for everybody else.
    """
    told = {**params, "message": message}
    configuration = {**(params.get("configuration") or {})}
    configuration.pop("pushNotificationConfig", None)
    configuration.pop("historyLength", None)
    if not stream:
        configuration["blocking"] = False
    if configuration:
        told["configuration"] = configuration
    else:
        told.pop("configuration", None)
    return told


def foreign_params(message: JsonObject, metadata: JsonObject, modes: list[str], *, stream: bool) -> JsonObject:
    """Params for a message that was said in another dialect."""
    configuration: JsonObject = {"acceptedOutputModes": modes} if modes else {}
    if not stream:
        configuration["blocking"] = False
    told: JsonObject = {"message": message}
    if configuration:
        told["configuration"] = configuration
    if metadata:
        told["metadata"] = metadata
    return told


def task_params(ids: Ids) -> JsonObject:
    return {"id": ids.worker_task}
