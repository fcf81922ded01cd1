"""Our own cards in 1.0."""

from __future__ import annotations

from collections.abc import Sequence

from rolecall.model.a2a import JsonObject
from rolecall.model.card import Profile, Requirement
from rolecall.protocol.text.members import drop_empty
from rolecall.protocol.text.profile import common_members, interfaces_in, write_capabilities, write_interface, write_skill
from rolecall.protocol.v1_0 import VERSION

_WRAPPERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}


def write(profile: Profile) -> JsonObject:
    return {
        **common_members(profile),
        "supportedInterfaces": [write_interface(interface) for interface in interfaces_in(profile, VERSION)],
        "capabilities": write_capabilities(profile) | {"extendedAgentCard": profile.capabilities.extended_card},
        "skills": [
            write_skill(skill) | drop_empty(securityRequirements=_security(skill.requirements)) for skill in profile.skills
        ],
        **drop_empty(
            securitySchemes={name: _scheme(scheme) for name, scheme in profile.security_schemes.items()} or None,
            securityRequirements=_security(profile.requirements),
        ),
    }


def _security(requirements: Sequence[Requirement]) -> list[JsonObject]:
    return [{"schemes": {name: {"list": list(scopes)} for name, scopes in requirement.items()}} for requirement in requirements]


def _scheme(scheme: JsonObject) -> JsonObject:
    """1.0 has a member for each type instead of `type`, and `location` instead of `in`."""
    if scheme["type"] == "oauth2" and len(scheme["flows"]) != 1:
        raise ValueError("an OAuth security scheme has exactly one flow")
    named = {"location" if name == "in" else name: value for name, value in scheme.items() if name != "type"}
    return {_WRAPPERS[scheme["type"]]: named}
