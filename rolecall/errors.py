"""Everything that can go wrong, in one tree. What each means on the wire stands in one table: rolecall/protocol/faults.py.

    HubError
    ├── RequestError            the request itself; nothing was done
    │   ├── ParseError  InvalidRequest  MethodNotFound  InvalidParams
    │   ├── BodyTooLarge  MediaTypeNotSupported  BodyTooSlow
    │   ├── UnsupportedOperation  VersionNotSupported  ExtendedCardNotConfigured  PushNotSupported
    │   └── KeyConflict  WebhookRejected (an InvalidParams), WebhookInsecure
    ├── AccessError             who is asking, or how the request came
    │   └── Unauthenticated  Forbidden  RoleForbidden  HubWide  BadHost  CrossSite  Smuggled
    │       HeadTooLarge
    ├── TaskError               about one task
    │   └── TaskNotFound  TaskNotCancelable  TaskEnded  TaskOver  PushConfigNotFound  DeadLetterNotFound
    ├── RouteError              nobody was asked; the caller may try again
    │   └── RoleUnknown  NoRoleNamed  SkillAmbiguous  NoLiveWorker  WorkerBusy  HubDraining  BrokenOff
    │       Overloaded  TooManyRequests  TooManyAtOnce  TooManyHeld  GoesInCircles
    ├── WorkerError             the worker's side of a call
    │   ├── NotProcessed        provably nothing happened: another worker may be tried
    │   │   └── WorkerUnreachable  WorkerRefused
    │   ├── WorkerBroke         the call had left: it may have run, so it is never tried again
    │   ├── WorkerLost  WorkerSilent  HubRestarted  LogFull  DeadlinePassed
    │   ├── WorkerFault         the worker answered with a JSON-RPC error
    │   └── InvalidAnswer       the worker answered with something that is not A2A
    ├── LeaseError              about a registration
    │   └── LeaseUnknown  LeaseSuperseded  InstanceConflict  OfferInvalid
    └── StoreError              the engine
        └── LogMoved  StoreUnavailable  SecretUnreadable

A message tells what happened, why, and what to do. Facts are attributes as well. No library's text gets in here. An error that
a setting bounds carries the setting's field; `message` writes the name that people know it by in place of `{setting}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from rolecall.model.setting import variable


class ClientGone(Exception):
    """Nobody is there to be answered: he left before his request was whole, or while he waited. Not an error of the hub."""


class HubError(Exception):
    """Something went wrong in the hub."""

    setting: str = ""
    """The field of the hub's settings that this is about."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())

    @property
    def message(self) -> str:
        """For people: the setting that this is about has its name."""
        text = str(self.args[0])
        return text.replace("{setting}", variable(self.setting)) if self.setting else text

    def __str__(self) -> str:
        return self.message

    @property
    def facts(self) -> dict[str, str]:
        """What a program may want to read without parsing the message."""
        return {}


# --- the request itself


class RequestError(HubError):
    """The request cannot be served as it stands."""


class ParseError(RequestError):
    """The body is not JSON: it must be one UTF-8 JSON value with finite numbers."""


class InvalidRequest(RequestError):
    """The body is JSON, but not a JSON-RPC 2.0 request."""


class MethodNotFound(RequestError):
    def __init__(self, method: str) -> None:
        super().__init__(f"Method not found: {method[:100]}")


class InvalidParams(RequestError):
    """The parameters do not fit the method."""


class WebhookRejected(InvalidParams):
    def __init__(self, why: str) -> None:
        super().__init__(f"webhook url rejected: {why}")


class WebhookInsecure(WebhookRejected):
    """Apart, because the oldest dialect has a code of its own for it."""

    def __init__(self) -> None:
        super().__init__("it must be https")


class BodyTooLarge(RequestError):
    setting = "max_body"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes. Send less, or raise {{setting}} on the hub.")
        self.limit = limit


class TooDeep(InvalidRequest):
    setting = "max_depth"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The JSON is nested deeper than the limit of {limit} levels ({{setting}}).")


class BodyTooSlow(RequestError):
    """The body did not arrive in time. Send it again, faster."""


class MediaTypeNotSupported(RequestError):
    """This address takes `Content-Type: application/json` and no content encoding."""


class UnsupportedOperation(RequestError):
    """This hub does not offer that operation."""


class PushNotSupported(RequestError):
    """Push notifications are not supported here."""


class VersionNotSupported(RequestError):
    def __init__(self, version: str) -> None:
        super().__init__(f"A2A version {version[:20]!r} is not spoken here. Spoken: 0.1, 0.3 and 1.0.")


class ExtendedCardNotConfigured(RequestError):
    """There is no extended card here; the public one is all there is."""


class KeyConflict(RequestError):
    """That Idempotency-Key was used for another message. Choose a new key for a new message."""


# --- who is asking


class AccessError(HubError):
    """The request was not let in."""


class Unauthenticated(AccessError):
    """A token is needed: Authorization: Bearer TOKEN, or X-API-Key. `rolecall tokens new` makes one."""


class Forbidden(AccessError):
    def __init__(self, kind: str, right: str) -> None:
        super().__init__(f"A token of kind {kind} may not {right}. `rolecall tokens new --kind …` makes another.")
        self.kind, self.right = kind, right


class RoleForbidden(AccessError):
    def __init__(self, role: str) -> None:
        super().__init__(f'This token may not enrol workers as "{role[:80]}". `rolecall tokens new --role` names roles.')


class HubWide(AccessError):
    """That is about all workspaces, so it is for holders in the workspace `default` alone."""


class BadHost(AccessError):
    """The Host header names another site. Set {setting} if the hub is reached under that name."""

    setting = "public_url"


class CrossSite(AccessError):
    """A page of another site sent this. Browsers may read here, and write only from the hub's own pages."""


class Smuggled(AccessError):
    """Content-Length and Transfer-Encoding together: one of them lies."""


class HeadTooLarge(AccessError):
    """The request's head is too large."""

    setting = "max_head"

    def __init__(self, most: int, size: int) -> None:
        super().__init__(f"A request may have {most} headers, of {size} bytes together ({{setting}} on the hub).")


class HeadEndless(AccessError):
    setting = "max_head"

    def __init__(self, size: int) -> None:
        super().__init__(f"A request's head may have {size} bytes, its address included: twice {{setting}} on the hub.")


class CodingUnknown(AccessError):
    """The only transfer coding that this hub takes is chunked."""


# --- one task


class TaskError(HubError):
    """About one task."""


class TaskNotFound(TaskError):
    """Task not found."""


class TaskNotCancelable(TaskError):
    """The task has ended already; there is nothing left to cancel."""


class TaskOver(TaskError):
    """The task has ended, so there is nothing to subscribe to. Get the task instead."""


class TaskEnded(TaskError):
    """The task has ended and takes no more messages. Send a new message without taskId, in the same context."""


class PushConfigNotFound(TaskError):
    """no push config"""


class TooManyPushConfigs(InvalidParams):
    setting = "max_push_configs"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The task has {limit} push configs already, the limit ({{setting}}). Delete one first.")


class DeadLetterNotFound(TaskError):
    """No dead letter of that task, config and event."""


# --- routing


class RouteError(HubError):
    """The call reached no worker."""

    retry_after: float | None = None


class RoleUnknown(RouteError):
    def __init__(self, role: str, live: Sequence[str]) -> None:
        near = get_close_matches(role, live, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        super().__init__(f'No role "{role[:80]}". {_live(live)}{hint}')
        self.role, self.live = role, tuple(live)

    @property
    def facts(self) -> dict[str, str]:
        return {"role": self.role[:80], "live": ",".join(self.live[:50])}


class NoRoleNamed(RouteError):
    setting = "default_role"

    def __init__(self, live: Sequence[str]) -> None:
        super().__init__(
            "The call names no role. Send to /agents/{role}/, or set metadata.role, or set {setting} on the hub. " + _live(live)
        )
        self.live = tuple(live)

    @property
    def facts(self) -> dict[str, str]:
        return {"live": ",".join(self.live[:50])}


class SkillAmbiguous(RouteError):
    def __init__(self, skill: str, roles: Sequence[str]) -> None:
        offer = f"Several roles offer it: {', '.join(roles)}. Name one." if roles else "No live role offers it."
        super().__init__(f'Cannot choose a role by skill "{skill[:80]}". {offer}')
        self.skill, self.roles = skill, tuple(roles)

    @property
    def facts(self) -> dict[str, str]:
        return {"skill": self.skill[:80], "roles": ",".join(self.roles[:50])}


class NoLiveWorker(RouteError):
    def __init__(self, name: str, why: str = "", retry_after: float = 10) -> None:
        super().__init__(
            f'No live worker for "{name[:160]}"{": " + why if why else ""}. Start one: rolecall worker run module:worker'
        )
        self.name, self.retry_after = name, retry_after

    @property
    def facts(self) -> dict[str, str]:
        return {"role": self.name[:160], "retryAfter": f"{self.retry_after:g}"}


class WorkerBusy(RouteError):
    def __init__(self, role: str, workers: int) -> None:
        count = "Its one live worker is" if workers == 1 else f"All {workers} live workers are"
        super().__init__(f'"{role}" is busy: {count} at capacity. Try again shortly, or start another worker.')
        self.role, self.retry_after = role, 1.0

    @property
    def facts(self) -> dict[str, str]:
        return {"role": self.role, "retryAfter": "1"}


class HubDraining(RouteError):
    """The hub is going down and takes no new calls. Try again in a moment."""

    retry_after = 2.0


class BrokenOff(RouteError):
    """Whoever sent this message first left before it was taken on. Send it again."""

    retry_after = 1.0


class Overloaded(RouteError):
    def __init__(self, what: str, limit: int, setting: str, *, holder: str = "The hub") -> None:
        super().__init__(f"{holder} holds {limit} {what}, its limit ({{setting}}). Try again later.")
        self.setting = setting
        self.retry_after = 5.0


class GoesInCircles(RouteError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"The call came through {limit} hubs, or goes in circles: is a hub enrolled as its own worker?")


class TooManyRequests(RouteError):
    setting = "max_rate"

    def __init__(self, rate: float, wait: float) -> None:
        super().__init__(f"This token asks more than {rate:g} times a second ({{setting}} on the hub). Wait a moment.")
        self.retry_after = max(wait, 1.0)


class TooManyAtOnce(RouteError):
    setting = "max_at_once"

    def __init__(self, limit: int) -> None:
        super().__init__(f"This token has {limit} requests under way, its limit ({{setting}} on the hub).")
        self.retry_after = 1.0


class TooManyHeld(RouteError):
    setting = "max_agents_per_token"

    def __init__(self, limit: int) -> None:
        super().__init__(f"This token has {limit} workers registered, its limit ({{setting}} on the hub).")
        self.retry_after = 30.0


# --- the worker's side of a call


class WorkerError(HubError):
    """The call to a worker failed."""


class NotProcessed(WorkerError):
    """The worker provably did nothing: another one may be tried."""


class WorkerUnreachable(NotProcessed):
    def __init__(self, worker: str, url: str, why: str) -> None:
        super().__init__(f"{worker} cannot be reached at {url}: {why}.")
        self.worker, self.url, self.why = worker, url, why


class WorkerRefused(NotProcessed):
    def __init__(self, worker: str, why: str = "it takes no more work at the moment") -> None:
        super().__init__(f"{worker} refused the call: {why}.")
        self.worker = worker


class WorkerBroke(WorkerError):
    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} broke off the call: {why}. It may have run, so it was not repeated.")
        self.worker, self.why = worker, why


class WorkerLost(WorkerError):
    """The worker was lost while the task ran. What it had not yet sent is gone."""


class WorkerSilent(WorkerError):
    """The worker gave no sign of life for too long."""


class HubRestarted(WorkerError):
    """The hub was restarted before the worker's first event. The call may have run, so it was not repeated."""


class LogFull(WorkerError):
    setting = "max_log"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The worker sent more than a task's log may hold, {limit} bytes ({{setting}} on the hub).")


class DeadlinePassed(WorkerError):
    setting = "task_deadline"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The task was not done within {seconds:g} s ({{setting}} on the hub).")


_TASK_NOT_FOUND, _TASK_NOT_CANCELABLE = -32001, -32002
"""A2A's codes, the only ones that a decision of the hub hangs on."""


class WorkerFault(WorkerError):
    """The worker answered with an error of its own. `code` is its JSON-RPC code, `text` what it said."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text

    @property
    def task_unknown(self) -> bool:
        return self.code == _TASK_NOT_FOUND

    @property
    def too_late_to_cancel(self) -> bool:
        return self.code == _TASK_NOT_CANCELABLE


class InvalidAnswer(WorkerError):
    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} gave an answer that is not A2A: {why}.")
        self.worker, self.why = worker, why


# --- registrations


class LeaseError(HubError):
    """About a registration."""


class LeaseUnknown(LeaseError):
    """No live lease under that name. Enrol again."""


class LeaseSuperseded(LeaseError):
    """Another process has taken over that name, or the lease token is not the one that was given. Enrol again."""


class InstanceConflict(LeaseError):
    def __init__(self, worker: str, url: str) -> None:
        super().__init__(f"{worker} is alive at {url}. Choose another instance name, or stop that process first.")
        self.worker = worker


class OfferInvalid(LeaseError):
    def __init__(self, field: str, why: str, *, setting: str = "") -> None:
        """`setting`: what bounds the field; `{setting}` in `why` names it."""
        super().__init__(f"{field}: {why}.")
        self.field, self.why, self.setting = field, why, setting

    @property
    def facts(self) -> dict[str, str]:
        return {"field": self.field}


# --- the engine


class StoreError(HubError):
    """The store could not do it."""


class LogMoved(StoreError):
    """Somebody else wrote to this task's log: one writer per task. The loser stops."""


class StoreUnavailable(StoreError):
    """The hub's store does not take writes at the moment; nothing was changed. Try again later."""


class SecretUnreadable(StoreError):
    """A stored secret cannot be read: it was sealed under another key ({setting}, or secret.key)."""

    setting = "secret_key"


class ConfigError(HubError):
    """A setting is wrong. `problems` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def _live(roles: Sequence[str]) -> str:
    return f"Live: {', '.join(roles[:20])}{', …' if len(roles) > 20 else ''}." if roles else "No worker is live."
