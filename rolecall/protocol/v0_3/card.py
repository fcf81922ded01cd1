"""Our own cards in 0.3."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import JsonObject
from rolecall.model.card import Profile, Requirement
from rolecall.protocol.text.members import drop_empty
from rolecall.protocol.text.profile import common_members, interfaces_in, write_capabilities, write_skill
from rolecall.protocol.v0_3 import VERSION

_VERSION = "0.3.0"


def write(profile: Profile) -> JsonObject:
    interfaces = interfaces_in(profile, VERSION)
    return {
        "protocolVersion": _VERSION,
        **common_members(profile),
        "url": interfaces[0].url,
        "preferredTransport": interfaces[0].binding,
        "additionalInterfaces": [{"url": interface.url, "transport": interface.binding} for interface in interfaces],
        "capabilities": write_capabilities(profile) | {"stateTransitionHistory": profile.capabilities.state_transition_history},
        "supportsAuthenticatedExtendedCard": profile.capabilities.extended_card,
        "skills": [write_skill(skill) | drop_empty(security=_security(skill.requirements)) for skill in profile.skills],
        **drop_empty(
            securitySchemes=dict(profile.security_schemes) or None,
            security=_security(profile.requirements),
        ),
    }


def _security(requirements: Sequence[Requirement]) -> list[JsonObject]:
    return [{name: list(scopes) for name, scopes in requirement.items()} for requirement in requirements]
