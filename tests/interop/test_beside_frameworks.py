"""The base install and the hub share an environment with agent frameworks, at both ends of the pydantic that each admits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.helpers.environments import Environment, build_wheel

# The requirement, and the module that people import.
FRAMEWORKS = {
    "crewai": "crewai",
    "google-adk": "google.adk",
    "langgraph": "langgraph.graph",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
    "a2a-sdk==0.3.26": "a2a.client",
    "a2a-sdk==1.3.0": "a2a.client",
}
# What frameworks ask for when they are imported is off: the test needs no network but for pip.
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("framework", FRAMEWORKS)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_wheel(tmp_path_factory.mktemp("wheel")).as_uri()


@pytest.fixture
def environment() -> Iterator[Environment]:
    """It is removed at once: with a framework it is large."""
    with tempfile.TemporaryDirectory(prefix="rolecall-beside-") as folder:
        yield Environment(Path(folder))


def test_the_hub_and_the_sdk_run_beside_a_framework(wheel: str, environment: Environment, framework: str) -> None:
    together = (f"rolecall[hub] @ {wheel}", newest(framework, environment))
    imports = f"import hub.app, {FRAMEWORKS[framework]}; from rolecall import HubClient, Worker"
    environment.install(*together)
    environment.finish(environment.python, "-c", imports, env=QUIET)
    packages = environment.packages()
    lowest = lowest_pydantic(packages)
    environment.install(*together, f"pydantic=={lowest}")
    environment.finish(environment.python, "-c", imports, env=QUIET)
    print(f"{together[1]} beside the hub: pydantic {lowest} to {version_of('pydantic', packages)}")


def test_the_base_install_resolves_beside_a_framework(wheel: str, environment: Environment, framework: str) -> None:
    together = (f"rolecall @ {wheel}", newest(framework, environment))
    packages = environment.resolve(*together)
    lowest = lowest_pydantic(packages)
    environment.resolve(*together, f"pydantic=={lowest}")
    print(f"{together[1]} beside the base: pydantic {lowest} to {version_of('pydantic', packages)}")


def newest(framework: str, environment: Environment) -> str:
    """Its requirement at the version that it has alone, so that pip cannot take an older one that admits more."""
    name = framework.partition("==")[0]
    return f"{name}=={version_of(name, environment.resolve(framework))}"


def lowest_pydantic(packages: list[dict[str, Any]]) -> Version:
    """The lowest version that every one of these packages admits: the highest of their lower bounds."""
    asked = list(requirements_of_pydantic(packages))
    bounds = [
        Version(part.version.removesuffix(".*"))
        for requirement in asked
        for part in requirement.specifier
        if part.operator in (">=", "~=", "==")
    ]
    lowest = max(bounds)
    assert all(requirement.specifier.contains(lowest) for requirement in asked), [str(requirement) for requirement in asked]
    return lowest


def requirements_of_pydantic(packages: list[dict[str, Any]]) -> Iterator[Requirement]:
    """With those of the hub, the one extra that is asked for."""
    for package in packages:
        extra = "hub" if package["name"] == "rolecall" else ""
        for requirement in map(Requirement, package.get("requires_dist", [])):
            counts = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if requirement.name == "pydantic" and counts:
                yield requirement


def version_of(name: str, packages: list[dict[str, Any]]) -> str:
    return next(str(package["version"]) for package in packages if package["name"] == name)
