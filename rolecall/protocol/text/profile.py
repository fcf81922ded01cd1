"""The parts of our own cards that every dialect matches alike."""

from __future__ import annotations

from rolecall.model.a2a import JsonObject
from rolecall.model.card import SCHEMAS_EXTENSION, Extension, Interface, Profile, Skill
from rolecall.protocol.text.members import drop_empty


def interfaces_in(profile: Profile, dialect: str) -> list[Interface]:
    found = [interface for interface in profile.interfaces if interface.dialect == dialect]
    if not found:
        raise ValueError(f"a card in {dialect} needs an interface in {dialect}")
    return found


def common_members(profile: Profile) -> JsonObject:
    return {
        "name": profile.name,
        "description": profile.description,
        "version": profile.version,
        "defaultInputModes": list(profile.input_modes),
        "defaultOutputModes": list(profile.output_modes),
    } | drop_empty(
        provider=profile.provider and profile.provider._asdict(),
        iconUrl=profile.icon_url,
        documentationUrl=profile.documentation_url,
    )


def write_capabilities(profile: Profile) -> JsonObject:
    able = profile.capabilities
    extensions = [write_extension(extension) for extension in (*able.extensions, *_schemas_extension(profile))]
    return {"streaming": able.streaming, "pushNotifications": able.push_notifications} | drop_empty(extensions=extensions)


def write_skill(skill: Skill) -> JsonObject:
    required = {"id": skill.id, "name": skill.name, "description": skill.description, "tags": list(skill.tags)}
    return required | drop_empty(
        examples=list(skill.examples),
        inputModes=list(skill.input_modes),
        outputModes=list(skill.output_modes),
    )


def write_schemas(skill: Skill) -> JsonObject:
    """Empty if it has none."""
    return drop_empty(inputSchema=skill.input_schema, outputSchema=skill.output_schema)


def _schemas_extension(profile: Profile) -> list[Extension]:
    schemas = {skill.id: written for skill in profile.skills if (written := write_schemas(skill))}
    text = "Data parts of these skills match these JSON Schemas."
    return [Extension(SCHEMAS_EXTENSION, text, params={"skills": schemas})] if schemas else []


def write_interface(interface: Interface) -> JsonObject:
    return drop_empty(
        url=interface.url,
        protocolBinding=interface.binding,
        protocolVersion=interface.dialect,
        tenant=interface.tenant,
    )


def write_extension(extension: Extension) -> JsonObject:
    return drop_empty(
        uri=extension.uri, description=extension.description, required=extension.required, params=extension.params
    )
