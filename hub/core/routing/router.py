"""Chooses the role that a call names, and the worker of that role that gets it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from random import Random
from typing import TypeVar

from hub.core.routing.failing import FailingWorkers
from hub.ports.state.registry import Registry
from hub.ports.state.task_store import TaskStore
from rolecall.errors import (
    InstanceNotLive,
    NoLiveWorker,
    NoRoleNamed,
    RoleUnknown,
    SkillAmbiguous,
    SkillNotOffered,
    TaskNotFound,
    WorkerAway,
    WorkerBusy,
)
from rolecall.model.command import Send, Target
from rolecall.model.ids import Caller, WorkerId
from rolecall.model.task import Conversation, TaskRow
from rolecall.model.value import Value
from rolecall.model.worker import Health, Registration

TRIAL = "trial"
"""The rule of a call that goes to a failing worker, to see whether it works again."""
_KEEPS_CONTEXTS = frozenset({Health.READY, Health.FAILING})
_MAY_SERVE = frozenset({Health.READY, Health.SUSPECT})


class Route(Value, frozen=True):
    """Where a call goes, and why. `conversation` is set if the worker already holds the context. `failing`: the workers of the
    role that were passed over because calls to them fail.
    """

    registration: Registration
    rule: str
    candidates: int
    conversation: Conversation | None = None
    failing: Sequence[Registration] = ()


class Router:
    def __init__(
        self,
        registry: Registry,
        tasks: TaskStore,
        failing: FailingWorkers,
        *,
        default_role: str | None,
        rng: Random | None = None,
    ) -> None:
        self._registry = registry
        self._tasks = tasks
        self._failing = failing
        self._default_role = default_role
        self._rng = rng or Random()

    def to_owner(self, caller: Caller, row: TaskRow, target: Target) -> Route:
        """A message to a task goes to the worker that holds it, in any state, or to none. WorkerAway."""
        check_agrees(row, target)
        owner = row.worker and self._registry.get(caller.workspace, row.worker)
        if owner is None or owner.epoch != row.epoch:
            raise WorkerAway(str(row.worker or row.role))
        return Route(owner, "owner", 1)

    async def choose(self, caller: Caller, send: Send) -> Route:
        """Choose the worker for a message that starts a task. RouteError."""
        role, instance, rule = self._role_of(caller.workspace, send.target)
        conversation: Conversation | None = None
        if send.context_id is not None:
            conversation = await self._tasks.conversation(caller, send.context_id, role)
            if role is None and conversation is not None:
                role, rule = conversation.worker.role, "context"
        if role is None and self._default_role is not None:
            role, rule = self._default_role, "default role"
        if role is None:
            raise NoRoleNamed(self._registry.roles(caller.workspace))
        skill = send.target.skill
        if instance is not None:
            return self._pinned(caller.workspace, WorkerId(role, instance), conversation, skill)
        return self.within(caller.workspace, role, conversation, rule=rule, skill=skill)

    def within(
        self,
        workspace: str,
        role: str,
        conversation: Conversation | None = None,
        *,
        rule: str = "role",
        avoid: Set[WorkerId] = frozenset(),
        skill: str | None = None,
    ) -> Route:
        """A worker of the role: the holder of the conversation, else the less busy of two ready ones. `skill`: one that it
        offers, if it declares any.
        """
        live = self._registry.live(workspace, role)
        if not live:
            raise self._no_worker(workspace, role)
        everybody = live
        if skill is not None:
            live = _offering(role, live, skill)
        if conversation is not None:
            holder = next((r for r in everybody if r.worker == conversation.worker and r.health in _KEEPS_CONTEXTS), None)
            offers = skill is None or any(r is holder for r in live)
            if holder is not None and offers and holder.worker not in avoid:
                if holder.full:
                    raise WorkerBusy(str(holder.worker), 1)
                return Route(holder, "context affinity", len(live), conversation)
            rule = "context holder gone" if holder is None or offers else "context holder lacks the skill"
        ready = [r for r in live if r.health is Health.READY and not (avoid and r.worker in avoid)]
        failing: Sequence[Registration] = ()
        if len(ready) < len(live):
            suspects = [r for r in live if r.health is Health.SUSPECT and r.worker not in avoid]
            if len(suspects) > len(ready):
                # If most are suspect, the fault is more likely in the hub than in the workers: try suspects too.
                ready, rule = ready + suspects, "panic"
            failing = [r for r in live if r.health is Health.FAILING]
            trial = self._failing.next_trial(failing) if failing and not avoid else None
            if trial is not None:
                return Route(trial, TRIAL, 1, failing=[r for r in failing if r is not trial])
            if len(failing) > sum(r.health in _MAY_SERVE for r in live):
                # The others have gone since: at most half of a role is passed over.
                ready, rule, failing = ready + [r for r in failing if r.worker not in avoid], "panic", ()
        if not ready:
            why = "every live one refused the call" if avoid else "every live one is draining"
            raise _limited(NoLiveWorker(role, why, retry_after=2), skill)
        free = [r for r in ready if not r.full]
        if not free:
            raise _limited(WorkerBusy(role, len(ready)), skill)
        return Route(least_busy_of_two(free, self._rng), rule, len(free), failing=failing)

    def _role_of(self, workspace: str, target: Target) -> tuple[str | None, str | None, str]:
        if target.path_role is not None:
            if target.role is not None and target.role != target.path_role:
                raise RoleUnknown(target.role, [target.path_role])
            return target.path_role, target.path_instance or target.instance, "path"
        if target.role is not None:
            return target.role, target.instance, "metadata"
        if target.skill is not None:
            return self._by_skill(workspace, target.skill), None, "skill"
        return None, None, ""

    def _by_skill(self, workspace: str, skill: str) -> str:
        roles = {r.worker.role for r in self._registry.live(workspace) if r.offer.offers(skill)}
        if len(roles) != 1:
            raise SkillAmbiguous(skill, sorted(roles))
        return roles.pop()

    def _pinned(self, workspace: str, worker: WorkerId, conversation: Conversation | None, skill: str | None) -> Route:
        registration = self._registry.get(workspace, worker)
        if registration is None:
            live = self._registry.live(workspace, worker.role)
            if not live:
                raise self._no_worker(workspace, worker.role)
            raise InstanceNotLive(str(worker), sorted(str(r.worker) for r in live))
        if registration.health is Health.DRAINING:
            raise NoLiveWorker(str(worker), "it is draining", retry_after=2)
        if skill is not None:
            _offering(str(worker), (registration,), skill)
        if registration.full:
            raise WorkerBusy(str(worker), 1)
        return Route(registration, "instance", 1, conversation if conversation and conversation.worker == worker else None)

    def _no_worker(self, workspace: str, role: str) -> RoleUnknown | NoLiveWorker:
        last = self._registry.last_of(workspace, role)
        if last is None:
            return RoleUnknown(role, self._registry.roles(workspace))
        return NoLiveWorker(role, f"the last one, {last.worker.instance}, has {_GONE.get(last.kind.value, 'gone')}")


def _offering(name: str, live: Sequence[Registration], skill: str) -> Sequence[Registration]:
    """Those that offer the skill, or declare none. SkillNotOffered."""
    found = [r for r in live if not r.offer.declared_skills or r.offer.offers(skill)]
    if not found:
        raise SkillNotOffered(name, skill, sorted({offered for r in live for offered in r.offer.declared_skills}))
    return found


_Refusal = TypeVar("_Refusal", NoLiveWorker, WorkerBusy)


def _limited(refusal: _Refusal, skill: str | None) -> _Refusal:
    refusal.skill = skill or ""
    return refusal


_GONE = {"expired": "missed its heartbeats, or its token has ended", "withdrawn": "withdrawn"}


def check_agrees(row: TaskRow, target: Target) -> None:
    """TaskNotFound if the path or the metadata names another role than the task's."""
    for role in (target.path_role, target.role):
        if role is not None and role != row.role:
            raise TaskNotFound


def least_busy_of_two(candidates: Sequence[Registration], rng: Random) -> Registration:
    """Two random candidates spread the load almost as well as all, and do not send every call to the newest worker."""
    count = len(candidates)
    if count == 1:
        return candidates[0]
    first = int(rng.random() * count)
    second = int(rng.random() * (count - 1))
    if second >= first:
        second += 1
    one, other = candidates[first], candidates[second]
    return one if relative_load(one) <= relative_load(other) else other


def relative_load(registration: Registration) -> float:
    """The used share of the worker's capacity. Without a capacity: its load divided by 8, to compare with such shares."""
    capacity = registration.offer.capacity
    return registration.load / (capacity if capacity else 8)
