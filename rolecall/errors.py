"""All errors, in one tree. rolecall/protocol/faults.py has the one table of their codes and statuses on the wire.

    HubError
    ├── RequestError            the request is wrong; nothing was done
    │   ├── ParseError  InvalidRequest  TooDeep  TooManyValues (each an InvalidRequest)  MethodNotFound
    │   ├── InvalidParams           also WebhookRejected  WebhookInsecure  TooManyPushConfigs
    │   ├── BodyTooLarge  FileTooLarge (a BodyTooLarge)  MediaTypeNotSupported  BodyTooSlow  RangeInvalid
    │   ├── UnsupportedOperation  VersionNotSupported  ExtendedCardNotConfigured  PushNotSupported  NoFiles
    │   └── KeyConflict
    ├── AccessError             the caller, or the form of the HTTP request
    │   ├── Unauthenticated (also NoTokens  TokensUnread  TokenUnknown  TokenEnded)  NotLocal  ThroughProxy (a NotLocal)
    │   └── Forbidden  RoleForbidden  HubWide  BadHost  CrossSite  Smuggled  HeadTooLarge  HeadEndless
    │       CodingUnknown
    ├── TaskError               one task
    │   └── TaskNotFound  TaskNotCancelable  TaskEnded  TaskOver  PushConfigNotFound  DeadLetterNotFound  ArtifactNotFound
    │       ArtifactUnreadable
    ├── FileError               one file
    │   └── FileNotFound  FileLost  FileBound  FileIncomplete  UploadElsewhere  UploadTakenOver  TooManyBytes
    ├── RouteError              the request reached no worker; with `retry_after`, another try may succeed
    │   └── RoleUnknown  NoRoleNamed  SkillAmbiguous  NoLiveWorker  WorkerAway  WorkerBusy  HubDraining (also Quarantined)
    │       BrokenOff  Overloaded (also NoDescriptors  AuditDown  AnswerNotSent  AnswerNotInBatch  NotRun)  ListTooSlow
    │       TooManyRequests
    │       TooManyAtOnce  TooManyRegistrations  GoesInCircles  ParentOver  CallerGone  DeadlineBefore
    │       ChainRefused (ChainTooLong  RoleInChain  TreeTooLarge)
    ├── WorkerError             a call to a worker
    │   ├── NotProcessed        the worker provably did nothing: the hub may try another
    │   │   └── WorkerUnreachable  CredentialRefused (a WorkerUnreachable)  WorkerRefused  WorkerFull (a WorkerRefused)
    │   ├── WorkerBroke         the call was sent: it may have run, so it is never repeated
    │   ├── WorkerLost  WorkerSilent  HubRestarted  LogFull  LogTooLong  DiskFull (each a LogFull)
    │   ├── DeadlinePassed  DeadlineOfCall
    │   ├── WorkerFault         the worker answered with a JSON-RPC error
    │   └── InvalidAnswer       the worker's answer is not A2A; also AnswerTooLarge  EventTooLarge
    ├── LeaseError              a registration
    │   └── LeaseUnknown  LeaseSuperseded  InstanceConflict  DrainsItself  OfferInvalid
    ├── StoreError              the engine
    │   └── LogMoved  StoreUnavailable  DiskLow  NoRoomForFile (each a StoreUnavailable)  SecretUnreadable
    └── ConfigError             the settings

A message has three parts: what happened, why, and what to do. Facts are also attributes. No message contains a library's text.
The docstring of a class is its default message. An error about a limit has the setting's field in `setting`; `message` replaces
`{setting}` by the name of its environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Self

from rolecall.setting import variable


class ClientDisconnected(Exception):
    """The client disconnected before its request was complete or before it was answered. Not an error of the hub."""


class HubError(Exception):
    """An error occurred in the hub."""

    setting: str = ""
    """The field of the hub's settings that the message names."""
    task: str = ""
    """The task that there is in spite of the error."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())

    def copy(self) -> Self:
        """The same error without its traceback. Whoever keeps an error, or raises one that is kept, uses a copy: a traceback
        refers to frames, and these refer to whoever keeps it, so that only the garbage collector would free both.
        """
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__)
        copied.__cause__ = self.__cause__
        return copied

    @property
    def message(self) -> str:
        """For people: with the name of the setting."""
        text = str(self.args[0])
        return text.replace("{setting}", variable(self.setting)) if self.setting else text

    def __str__(self) -> str:
        return self.message

    @property
    def facts(self) -> dict[str, str]:
        """For programs, so that they need not parse the message."""
        return {}


# --- the request


class RequestError(HubError):
    """The request is not valid."""


class ParseError(RequestError):
    """The body is not JSON. Send one JSON value in UTF-8, with finite numbers."""


class InvalidRequest(RequestError):
    """The body is JSON, but not a JSON-RPC 2.0 request."""


class MethodNotFound(RequestError):
    def __init__(self, method: str) -> None:
        super().__init__(f"Method not found: {method[:100]}")


class InvalidParams(RequestError):
    """The parameters are not valid for this method."""


class WebhookRejected(InvalidParams):
    setting = "push_allowed_hosts"

    def __init__(self, why: str) -> None:
        super().__init__(f"webhook url rejected: {why}")


class WebhookInsecure(WebhookRejected):
    """A class of its own, because 0.1 has a separate code for it."""

    def __init__(self) -> None:
        super().__init__("it must be https, unless {setting} on the hub names its host")


class BodyTooLarge(RequestError):
    setting = "max_body"

    def __init__(
        self, limit: int, where: str = "{setting} on the hub, or upload what is large as a file (POST /registry/files)"
    ) -> None:
        super().__init__(f"The body is larger than {limit} bytes. Send less, or raise {where}.")
        self.limit = limit


class FileTooLarge(BodyTooLarge):
    setting = "max_file"

    def __init__(self, limit: int) -> None:
        RequestError.__init__(self, f"The file is larger than {limit} bytes, the limit ({{setting}} on the hub).")
        self.limit = limit


class TooDeep(InvalidRequest):
    setting = "max_depth"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The JSON is nested deeper than {limit} levels, the limit ({{setting}} on the hub). Send less nested JSON."
        )


class TooManyValues(InvalidRequest):
    def __init__(self, limit: int) -> None:
        super().__init__(f"The JSON holds more than {limit} numbers, texts, lists and objects. Send them as a file or a text.")


class BodyTooSlow(RequestError):
    """The body did not arrive in time. Send it again, faster."""


class RangeInvalid(RequestError):
    def __init__(self, size: int) -> None:
        super().__init__(f"The range is not within the content, which has {size} bytes.")
        self.size = size


class MediaTypeNotSupported(RequestError):
    """This address accepts only `Content-Type: application/json`, without a content encoding."""


class UnsupportedOperation(RequestError):
    """This hub does not support that operation."""


class PushNotSupported(RequestError):
    """This hub does not support push notifications."""


class NoFiles(RequestError):
    """This hub takes no files ({setting} is 0). Send their bytes in the parts of messages."""

    setting = "max_file"


class VersionNotSupported(RequestError):
    def __init__(self, version: str, supported: Sequence[str]) -> None:
        *others, last = supported
        known = f"{', '.join(others)} or {last}" if others else last
        super().__init__(f"A2A version {version[:20]!r} is not supported. Use {known}.")


class ExtendedCardNotConfigured(RequestError):
    """This hub has no extended card. Use the public card."""


class KeyConflict(RequestError):
    """That Idempotency-Key was used for another message. Use a new key for a new message."""


# --- the caller and the HTTP request


class AccessError(HubError):
    """The request is not allowed."""


class Unauthenticated(AccessError):
    """A token is needed, in the header `X-API-Key`, or behind `Authorization: Bearer`. Make one with `rolecall tokens new`."""


class TokenUnknown(Unauthenticated):
    """This token is not known here: it is wrong, has expired, or was revoked. Make another one with `rolecall tokens new`."""

    def __init__(self, token: str = "") -> None:
        """`token`: the public id of the one that was shown, if it was valid once. Callers do not learn it."""
        super().__init__()
        self.token = token


class NoTokens(Unauthenticated):
    """This hub has had tokens and has none now, so it refuses every caller. Make one where it runs: `rolecall tokens new`."""


class TokensUnread(NoTokens):
    """This hub cannot read its token file, so it accepts no token. Its log says why; if it is lost: `rolecall tokens new`."""


class TokenEnded(Unauthenticated):
    """The token of this request was revoked, or has expired, or cannot be checked. What it began runs on for its holder."""


class NotLocal(AccessError):
    """This hub has no tokens, so it answers callers on its own machine only. Make one with `rolecall tokens new`."""


class ThroughProxy(NotLocal):
    """A proxy forwarded this request, and this hub has no tokens. Make one with `rolecall tokens new`, and send it."""


_NEEDS = {
    "read": ("read", "a reader, client, worker or admin"),
    "call": ("send messages or cancel tasks", "a client or admin"),
    "enrol": ("enrol workers", "a worker or admin"),
    "operate": ("drain workers or redeliver webhook requests", "an admin"),
}
"""What each right allows, and the kinds of token that have it."""


class Forbidden(AccessError):
    def __init__(self, kind: str, right: str) -> None:
        what, kinds = _NEEDS[right]
        super().__init__(f"This {kind} token cannot {what}; use {kinds} token.")
        self.kind, self.right = kind, right


class RoleForbidden(AccessError):
    def __init__(self, role: str) -> None:
        super().__init__(
            f'This token cannot enrol workers as "{role[:80]}"; use one made with `rolecall tokens new --kind worker --role`.'
        )


class HubWide(AccessError):
    """This concerns all workspaces; use a token of the workspace `default`."""


class BadHost(AccessError):
    """The Host header names another site. If clients reach the hub under that name, set {setting}."""

    setting = "public_url"


class CrossSite(AccessError):
    """A page of another origin sent this request. For pages that may use this hub, list their origin in {setting}."""

    setting = "allowed_origins"


class Smuggled(AccessError):
    """The request has both Content-Length and Transfer-Encoding. Send only one of them."""


class HeadTooLarge(AccessError):
    """The request's head is too large."""

    setting = "max_head"

    def __init__(self, count: int, size: int) -> None:
        super().__init__(
            f"The request has more than {count} headers, or more than {size} bytes of them ({{setting}} on the hub)."
        )


class HeadEndless(AccessError):
    setting = "max_head"

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The request's head, with its address, is larger than {size} bytes: twice {{setting}} on the hub. Send less."
        )


class CodingUnknown(AccessError):
    """This hub does not support that transfer coding. Use chunked."""


# --- one task


class TaskError(HubError):
    """An error about one task."""


class TaskNotFound(TaskError):
    """Task not found."""


class TaskNotCancelable(TaskError):
    """The task has already ended, so it cannot be canceled."""


class TaskOver(TaskError):
    """The task has ended, so it sends no more events. Get the task instead."""

    def __init__(self, last: int | None = None) -> None:
        """`last`: the number of its last event. A reader that has it has everything."""
        super().__init__()
        self.last = last

    @property
    def facts(self) -> dict[str, str]:
        return {} if self.last is None else {"sequence": str(self.last)}


class TaskEnded(TaskError):
    """The task has ended and accepts no more messages. Send a new message without taskId, in the same context."""


class PushConfigNotFound(TaskError):
    """no push config"""


class ArtifactNotFound(TaskError):
    def __init__(self, number: int, count: int) -> None:
        super().__init__(f"The task has {count} artifacts, and no artifact {number}.")


class ArtifactUnreadable(TaskError):
    def __init__(self, why: str) -> None:
        super().__init__(f"The worker sent an artifact that is no file: {why} The task has it as it was sent.")


class TooManyPushConfigs(InvalidParams):
    setting = "max_push_configs"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The task already has {limit} push configs, the limit ({{setting}} on the hub). Delete one first.")


class DeadLetterNotFound(TaskError):
    """There is no dead letter for that task, config and event."""


# --- one file


class FileError(HubError):
    """An error about one file."""


class FileNotFound(FileError):
    """File not found."""


class FileLost(FileError):
    """The hub's disk no longer has the bytes of this file. Upload it again."""


class FileBound(FileError):
    """A task has this file, and keeps it. It goes with its last task: erase that."""


class FileIncomplete(FileError):
    def __init__(self, offset: int) -> None:
        super().__init__(f"The file is not complete: {offset} bytes of it have come. Go on with its upload (PATCH) first.")
        self.offset = offset

    @property
    def facts(self) -> dict[str, str]:
        return {"offset": str(self.offset)}


class TooManyBytes(FileError):
    def __init__(self, length: int) -> None:
        super().__init__(f"More bytes came than the {length} of the file (Upload-Length). It stays as it was.")


class UploadTakenOver(FileError):
    """This upload goes on in another request."""


class UploadElsewhere(FileError):
    """The bytes of an upload do not follow those that the hub has. `offset`: where it goes on."""

    def __init__(self, offset: int, *, complete: bool = False) -> None:
        why = "and is complete" if complete else "so the upload goes on there (Upload-Offset)"
        super().__init__(f"The file has {offset} bytes, {why}.")
        self.offset, self.complete = offset, complete

    @property
    def facts(self) -> dict[str, str]:
        return {"offset": str(self.offset)}


# --- routing


class RouteError(HubError):
    """The call reached no worker."""

    retry_after: float | None = None
    skill: str = ""
    """That the worker had to offer."""

    @property
    def facts(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retryAfter": f"{self.retry_after:g}"}


class RoleUnknown(RouteError):
    def __init__(self, role: str, live: Sequence[str]) -> None:
        near = get_close_matches(role, live, n=1)
        suggestion = f" Did you mean {near[0]}?" if near else ""
        super().__init__(f'No role "{role[:80]}". {_live(live)}{suggestion}')
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


class InstanceNotLive(NoLiveWorker):
    """`live`: the names of the role's live workers."""

    def __init__(self, name: str, live: Sequence[str]) -> None:
        listed = f"{', '.join(live[:20])}{' and more' if len(live) > 20 else ''}"
        RouteError.__init__(self, f'No live worker "{name[:160]}". Live: {listed}.')
        self.name, self.live, self.retry_after = name, tuple(live), 10

    @property
    def facts(self) -> dict[str, str]:
        return {**super().facts, "live": ",".join(self.live[:50])}


class SkillNotOffered(NoLiveWorker):
    """`name`: a role or one instance, whose live workers offer other skills. A call may wait for one that offers it."""

    def __init__(self, name: str, skill: str, offered: Sequence[str]) -> None:
        near = get_close_matches(skill[:80], offered, n=1)
        suggestion = f" Did you mean {near[0]}?" if near else ""
        listed = ", ".join(offered[:50])[:1000]
        text = f'No live worker of "{name[:160]}" offers the skill "{skill[:80]}". There is: {listed}.{suggestion}'
        RouteError.__init__(self, text)
        self.name, self.skill, self.offered = name, skill, tuple(offered)

    @property
    def facts(self) -> dict[str, str]:
        return {"role": self.name[:160], "skill": self.skill[:80], "skills": ",".join(self.offered[:50])[:1000]}


class WorkerAway(RouteError):
    """A message to a paused task. Another worker cannot answer for the one that asked."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"The task waits for {worker[:160]}, which does not answer at present. Send the message again when it is back; "
            "if it is lost, the task fails with the reason."
        )
        self.worker, self.retry_after = worker, 10.0

    @property
    def facts(self) -> dict[str, str]:
        return {"worker": self.worker[:160], "retryAfter": f"{self.retry_after:g}"}


class WorkerBusy(RouteError):
    def __init__(self, role: str, workers: int) -> None:
        count = "its one live worker is" if workers == 1 else f"all {workers} live workers are"
        super().__init__(f'"{role}" is busy: {count} at capacity. Try again shortly, or start another worker.')
        self.role, self.retry_after = role, 1.0

    @property
    def facts(self) -> dict[str, str]:
        return {"role": self.role, "retryAfter": "1"}


class HubDraining(RouteError):
    """The hub is shutting down and accepts no new calls. Try again in a moment."""

    retry_after: float | None = 2.0


class Quarantined(HubDraining):
    """This hub is in quarantine ({setting}): it can be looked at, and takes no calls, no workers and no changes."""

    setting = "quarantine"
    retry_after = None


class BrokenOff(RouteError):
    """The first sender of this message disconnected before the hub accepted it. Send it again."""

    retry_after = 1.0


class Overloaded(RouteError):
    def __init__(self, what: str, limit: int, setting: str, *, holder: str = "The hub") -> None:
        super().__init__(f"{holder} holds {limit} {what}, its limit ({{setting}}). Try again later.")
        self.setting = setting
        self.retry_after = 5.0


class ListTooSlow(RouteError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Reading this list took longer than {seconds:g} s. Ask for less: one context, or what changed lately."
        )
        self.retry_after = 5.0


class AuditDown(Overloaded):
    """The hub's audit log cannot be written, and it begins nothing that it cannot record ({setting}). Nothing was done."""

    def __init__(self) -> None:
        RouteError.__init__(self)
        self.setting = "audit_required"
        self.retry_after = 5.0


class NoDescriptors(Overloaded):
    """The system gave the hub's process no file descriptor. It says nothing about the worker that was to be called."""

    def __init__(self) -> None:
        RouteError.__init__(
            self,
            "The hub has no file descriptor left for a connection. Try again later. If it stays so, raise the limit of open "
            "files of the hub's process (ulimit -n), or lower {setting}.",
        )
        self.setting = "max_connections"
        self.retry_after = 5.0


class AnswerNotSent(Overloaded):
    """The call was made, so it must not be made again: a repeat finds what it did."""

    def __init__(self, size: int, why: Overloaded) -> None:
        RouteError.__init__(
            self,
            f"The call was made, but its answer of about {size} bytes was not sent: {why.args[0]} "
            "A repeat of the same message gets the same answer.",
        )
        self.setting, self.retry_after = why.setting, why.retry_after


class AnswerNotInBatch(Overloaded):
    setting = "max_batch_answer"

    def __init__(self, size: int, limit: int) -> None:
        RouteError.__init__(
            self,
            f"The call was made, but its answer of {size} bytes does not fit into the batch's {limit} bytes ({{setting}} on "
            "the hub). Repeat it alone: a repeat of the same message gets the same answer.",
        )
        self.retry_after = 1.0


class NotRun(Overloaded):
    setting = "max_batch_answer"

    def __init__(self, limit: int) -> None:
        RouteError.__init__(
            self,
            f"The call was not made: the answers to the batch's earlier calls have its {limit} bytes ({{setting}} on the hub). "
            "Send it in another batch.",
        )
        self.retry_after = 1.0


class GoesInCircles(RouteError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"The call passed through {limit} hubs, the limit. Check that no hub is enrolled as its own worker.")


class ChainRefused(RouteError):
    """A call from within a task. `chain`: the roles from the root of its tree down to the one that was called."""

    def __init__(self, chain: Sequence[str], why: str) -> None:
        self.chain = " > ".join(chain)[:500]
        super().__init__(f"{why} The chain of calls: {self.chain}.")

    @property
    def facts(self) -> dict[str, str]:
        return {"chain": self.chain}


class ChainTooLong(ChainRefused):
    setting = "max_call_depth"

    def __init__(self, chain: Sequence[str], limit: int) -> None:
        super().__init__(chain, f"Tasks may start others {limit} levels deep ({{setting}} on the hub).")


class RoleInChain(ChainRefused):
    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__(
            chain, f'The role "{chain[-1]}" works on this already, further up. If that is meant, call it with again=True.'
        )


class TreeTooLarge(ChainRefused):
    setting = "max_tree_calls"

    def __init__(self, chain: Sequence[str], limit: int) -> None:
        super().__init__(chain, f"The tasks of one tree may start {limit} others in all ({{setting}} on the hub).")


class BudgetSpent(ChainRefused):
    """`owner`: the task that was called with the budget. `spent`: what there is no more of. `figures`: all that it bounds."""

    def __init__(self, chain: Sequence[str], owner: str, spent: Sequence[str], figures: Mapping[str, str]) -> None:
        super().__init__(chain, f"The budget of task {owner} is spent: {' and '.join(spent)}.")
        self.owner, self.figures = owner, dict(figures)

    @property
    def facts(self) -> dict[str, str]:
        return {"budgetTask": self.owner, **self.figures, "chain": self.chain}


class ParentOver(RouteError):
    """The task that this call is made in has ended, or its worker no longer has it: it can start no other."""


class CallerGone(RouteError):
    """The caller of the task may make no more calls: its token was revoked or has expired."""


class DeadlineBefore(RouteError):
    """The deadline of the task that this call is made in has passed."""


class TooManyRequests(RouteError):
    setting = "max_rate"

    def __init__(self, rate: float, wait: float) -> None:
        super().__init__(
            f"This caller makes more than {rate:g} calls per second with all its tokens, its limit ({{setting}} on the hub). "
            "Wait a moment."
        )
        self.retry_after = max(wait, 1.0)


class TooManyAtOnce(RouteError):
    setting = "max_at_once"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"This caller has {limit} calls in progress with all its tokens, its limit ({{setting}} on the hub). Wait until "
            "one has ended."
        )
        self.retry_after = 1.0


class TooManyRegistrations(RouteError):
    setting = "max_agents_per_token"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The holder of this token has {limit} registered workers, its limit ({{setting}} on the hub). Remove one first."
        )
        self.retry_after = 30.0


# --- a call to a worker


class WorkerError(HubError):
    """The call to a worker failed."""

    idempotent = False
    """The worker was lost, and has declared that its calls may be made again."""

    @property
    def facts(self) -> dict[str, str]:
        return {"idempotent": "true"} if self.idempotent else {}


class NotProcessed(WorkerError):
    """The worker provably did nothing: the hub may try another one."""


class WorkerUnreachable(NotProcessed):
    def __init__(self, worker: str, url: str, why: str, *, refused: bool = False) -> None:
        """`refused`: its machine answered that nothing listens there."""
        super().__init__(f"{worker} cannot be reached at {url}: {why}.")
        self.worker, self.url, self.why, self.refused = worker, url, why, refused


class CredentialRefused(WorkerUnreachable):
    """The worker was reached, and does not let the hub call it."""

    def __init__(self, worker: str, status: int, *, shown: bool) -> None:
        """`shown`: the hub has a credential for it."""
        why = f"it does not accept the hub's credential (HTTP {status})"
        if not shown:
            why = f"it asks for a credential (HTTP {status}), and the hub has none for it"
        NotProcessed.__init__(self, f"{worker} cannot be called: {why}.")
        self.worker, self.url, self.why, self.refused = worker, "", why, False


class WorkerRefused(NotProcessed):
    def __init__(self, worker: str, why: str = "it accepts no more calls at the moment") -> None:
        super().__init__(f"{worker} refused the call: {why}.")
        self.worker = worker


class WorkerFull(WorkerRefused):
    """The hub's limit for one worker, and not the worker, refuses the call."""

    setting = "max_connections_per_worker"

    def __init__(self, worker: str, limit: int) -> None:
        NotProcessed.__init__(
            self, f"The hub has {limit} connections open to {worker}, its limit for one worker ({{setting}}). Try again later."
        )
        self.worker = worker


class WorkerBroke(WorkerError):
    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} did not complete the call: {why}. The call may have run, so the hub did not repeat it.")
        self.worker, self.why = worker, why


class WorkerLost(WorkerError):
    """The worker was lost while the task ran. Events that it had not sent are lost."""


class WorkerSilent(WorkerError):
    """The worker sent nothing for too long."""


class HubRestarted(WorkerError):
    """The hub restarted before the worker's first event. The call may have run, so the hub did not repeat it."""


class LogFull(WorkerError):
    setting = "max_log"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The worker sent more than {limit} bytes, the limit of a task's log ({{setting}} on the hub).")


class LogTooLong(LogFull):
    setting = "max_log_events"

    def __init__(self, limit: int) -> None:
        WorkerError.__init__(
            self, f"The worker sent more than {limit} events, the limit of a task's log ({{setting}} on the hub)."
        )


class DiskFull(LogFull):
    """`excess`: which limit was exceeded."""

    def __init__(self, excess: Overloaded) -> None:
        WorkerError.__init__(self, str(excess.args[0]))
        self.setting = excess.setting


class DeadlinePassed(WorkerError):
    setting = "task_deadline"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The task was not done within {seconds:g} s ({{setting}} on the hub).")


class DeadlineOfCall(WorkerError):
    """The task was not done within the time that the call from within another task gave it."""


_TASK_NOT_FOUND, _TASK_NOT_CANCELABLE = -32001, -32002
_ABOUT_THE_REQUEST = frozenset({-32600, -32602, -32001, -32002, -32003, -32004, -32005, -32007, -32008, -32009})


class WorkerFault(WorkerError):
    """The worker answered with a JSON-RPC error. `code` and `text` are the error's code and message."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text

    @property
    def task_unknown(self) -> bool:
        return self.code == _TASK_NOT_FOUND

    @property
    def too_late_to_cancel(self) -> bool:
        return self.code == _TASK_NOT_CANCELABLE

    @property
    def may_be_the_callers(self) -> bool:
        """The code says that the request is wrong, and not the worker."""
        return self.code in _ABOUT_THE_REQUEST


class InvalidAnswer(WorkerError):
    def __init__(self, worker: str, why: str) -> None:
        super().__init__(f"{worker} sent an answer that is not A2A: {why}.")
        self.worker, self.why = worker, why


class AnswerTooLarge(InvalidAnswer):
    setting = "max_log"

    def __init__(self, worker: str, limit: int) -> None:
        self._say(worker, "an answer", limit, "a task's log")

    def _say(self, worker: str, what: str, limit: int, whole: str) -> None:
        self.worker, self.why = worker, f"{what} of more than {limit} bytes"
        WorkerError.__init__(
            self, f"{worker} sent {self.why}, the limit of {whole} ({{setting}} on the hub). Let it send pieces, or a link."
        )


class EventTooLarge(AnswerTooLarge):
    setting = "max_event"

    def __init__(self, worker: str, limit: int) -> None:
        self._say(worker, "an event", limit, "one event")


# --- registrations


class LeaseError(HubError):
    """An error about a registration."""


class LeaseUnknown(LeaseError):
    """There is no live lease under that name. Enrol again."""


class LeaseSuperseded(LeaseError):
    """Another process now holds that name, or the lease token is wrong. Enrol again."""


class InstanceConflict(LeaseError):
    def __init__(self, worker: str, url: str) -> None:
        super().__init__(f"{worker} is alive at {url}. Choose another instance name, or stop that process first.")
        self.worker = worker


class DrainsItself(LeaseError):
    def __init__(self, worker: str) -> None:
        super().__init__(f"{worker} is about to stop, and takes no new calls. Start it again instead.")


class OfferInvalid(LeaseError):
    def __init__(self, field: str, why: str, *, setting: str = "") -> None:
        """`setting`: the setting that limits the field; `{setting}` in `why` is replaced by its name."""
        super().__init__(f"{field}: {why}.")
        self.field, self.why, self.setting = field, why, setting

    @property
    def facts(self) -> dict[str, str]:
        return {"field": self.field}


# --- the engine


class StoreError(HubError):
    """The store failed."""


class LogMoved(StoreError):
    """Another writer appended to this task's log. A log has one writer, so this one must stop."""


class StoreUnavailable(StoreError):
    """The hub's store cannot write at the moment; nothing was changed. Try again later."""


class DiskLow(StoreUnavailable):
    """`limit`: bytes that should be free."""

    setting = "disk_reserve"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The hub's disk has less than {limit} bytes free, which {{setting}} keeps for the ends of tasks. New calls, "
            "answers and workers are refused until there is more room."
        )


class NoRoomForFile(StoreUnavailable):
    """`limit`: bytes that stay free."""

    setting = "disk_reserve"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The hub's disk has no room for this file beside the {limit} bytes that {{setting}} keeps free. Nothing of it is "
            "kept. Upload it again when there is more room."
        )


class SecretUnreadable(StoreError):
    """A stored secret cannot be read, because it was sealed with another key. Restore that key ({setting}, or secret.key)."""

    setting = "secret_key"


# --- the settings


class ConfigError(HubError):
    """Settings are wrong. `problems` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def _live(roles: Sequence[str]) -> str:
    return f"Live: {', '.join(roles[:20])}{', …' if len(roles) > 20 else ''}." if roles else "No worker is live."
