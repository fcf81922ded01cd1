"""The operations of callers on push configs and dead letters."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hub.core.push.deliveries import Deliveries
from hub.ports.identity import Vault
from hub.ports.state.pushes import Pushes
from hub.ports.webhooks import Webhooks
from rolecall.errors import InvalidParams, PushConfigNotFound
from rolecall.model.ids import Caller, Cursor, TaskId
from rolecall.model.push import DeadPage, PushConfig, SealedConfig

_ID = re.compile(r"[!-.0-~]{1,128}")
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_SECRET = re.compile(r"[ -~]{1,4096}")
_DEAD_PAGE = 100


class PushConfigs:
    """One method per operation. Returned configs hold no secrets."""

    def __init__(self, pushes: Pushes, webhooks: Webhooks, vault: Vault, deliveries: Deliveries, *, limit: int) -> None:
        self._pushes = pushes
        self._webhooks = webhooks
        self._vault = vault
        self._deliveries = deliveries
        self._limit = limit

    async def prepare(self, caller: Caller, config: PushConfig) -> SealedConfig:
        """Check a config and seal its secrets. Resolves its host; does not check its task. InvalidParams, Overloaded."""
        config = config.named()
        _check(config)
        host = await self._webhooks.check(caller.workspace, config.url)
        token, credentials = (
            self._vault.seal(secret.encode()) if secret is not None else None for secret in (config.token, config.credentials)
        )
        return SealedConfig(
            task=config.task,
            id=config.id,
            url=config.url,
            host=host,
            dialect=config.dialect,
            token=token,
            schemes=config.schemes,
            credentials=credentials,
            numbers=config.numbers,
            by_reference=config.by_reference,
        )

    async def set(self, caller: Caller, config: PushConfig, *, newest: bool = False) -> PushConfig:
        """`newest`: see the port. InvalidParams, TaskNotFound, Overloaded."""
        await self._pushes.list(caller, config.task)  # TaskNotFound takes precedence over a bad URL
        sealed = await self.prepare(caller, config)
        await self._pushes.set(caller, sealed, limit=self._limit, newest=newest)
        self._deliveries.cancel(sealed.task, sealed.id)
        return _without_secrets(sealed)

    async def get(self, caller: Caller, task: TaskId, config: str | None = None) -> PushConfig:
        """Without an id: the one whose id the hub made, or the first. PushConfigNotFound."""
        if config is not None:
            return _without_secrets(await self._pushes.get(caller, task, config))
        found = await self._pushes.list(caller, task)
        if not found:
            raise PushConfigNotFound
        return _without_secrets(next((one for one in found if one.id == task), found[0]))

    async def list(self, caller: Caller, task: TaskId) -> Sequence[PushConfig]:
        return [_without_secrets(config) for config in await self._pushes.list(caller, task)]

    async def delete(self, caller: Caller, task: TaskId, config: str) -> None:
        await self._pushes.delete(caller, task, config)
        self._deliveries.cancel(task, config)

    def erased(self, task: TaskId) -> None:
        """The task and its configs are gone."""
        self._deliveries.cancel(task)

    async def dead_letters(
        self, caller: Caller, *, limit: int = _DEAD_PAGE, before: str | None = None, whole: bool = False
    ) -> DeadPage:
        """`whole`: those of all callers in the workspace, for operators."""
        return await self._pushes.dead_letters(caller, limit=limit, before=before, whole=whole)

    async def redeliver(self, caller: Caller, task: TaskId, config: str, cursor: Cursor) -> None:
        """For operators: the task may belong to any caller in the workspace."""
        await self._pushes.redeliver(caller, task, config, cursor)


def _check(config: PushConfig) -> None:
    """All of these values go into headers or URLs. No error text contains a secret."""
    if not _ID.fullmatch(config.id):
        raise InvalidParams("A push config's id is 1 to 128 visible ASCII characters without a slash.")
    for scheme in config.schemes:
        if not _SCHEME.fullmatch(scheme):
            raise InvalidParams("An authentication scheme is one word, such as Bearer.")
    for name, secret in (("token", config.token), ("credentials", config.credentials)):
        if secret is not None and not _SECRET.fullmatch(secret):
            raise InvalidParams(f'"{name}" must be 1 to 4096 printable ASCII characters: it goes into an HTTP header.')


def _without_secrets(config: SealedConfig) -> PushConfig:
    return PushConfig(config.task, config.id, config.url, config.dialect, None, config.schemes, None)
