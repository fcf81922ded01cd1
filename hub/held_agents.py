"""The agents of `[[agents]]` whose leases the hub holds, with the credentials that their files hold now."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Sequence

from hub.core.registry.configured import ConfiguredAgents
from hub.identity.vault import SealingVault
from hub.settings.agents import AgentSetting, read_again
from rolecall.model.worker import ConfiguredAgent

log = logging.getLogger(__name__)

_LOOK_EVERY = 5.0


class HeldAgents:
    def __init__(self, configured: ConfiguredAgents, vault: SealingVault) -> None:
        self._configured = configured
        self._vault = vault
        self._agents: list[AgentSetting] = []
        self._sealed: dict[str, str] = {}
        """Their credentials, each sealed once, so that it stays the same."""
        self._unread: list[str] = []
        """Why some of them are not read again, as it was logged last."""

    def hold(self, agents: Sequence[AgentSetting]) -> None:
        """Hold the leases of these agents, and of no others, from now on."""
        self._agents = [*agents]
        secrets = {agent.authorization for agent in agents if agent.authorization is not None}
        self._sealed = {secret: self._sealed.get(secret) or self._seal(secret) for secret in secrets}
        self._configured.replace([self._with_credential(agent) for agent in agents])

    async def watch(self) -> None:
        """Run forever: hold the agents with the credentials that are in their files."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._look()

    async def _look(self) -> None:
        before = self._agents
        now, problems = await asyncio.to_thread(read_again, before)
        if self._agents is not before:
            return  # they were replaced meanwhile
        if problems != self._unread:
            self._unread = problems
            if problems:
                log.warning("credentials not read", extra={"event": "credentials_not_read", "why": " ".join(problems)})
        if now != before:
            self.hold(now)
            log.info("credentials read again", extra={"event": "credentials_read"})

    def _with_credential(self, agent: AgentSetting) -> ConfiguredAgent:
        credential = self._sealed[agent.authorization] if agent.authorization is not None else ""
        return ConfiguredAgent(agent.role, agent.url, agent.instance, agent.labels, credential)

    def _seal(self, secret: str) -> str:
        return b64encode(self._vault.seal(secret.encode())).decode()
