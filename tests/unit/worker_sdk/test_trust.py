"""TLS towards a hub: whom clients and workers trust, and what they report when that fails."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import certifi
import pytest

from tests.helpers.certificates import Authority, Certificate, new_authority, self_signed
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, always, answer, chunked_head
from tests.unit.worker_sdk.registry import Registry
from tests.unit.worker_sdk.test_client import OPEN, frame, status_update, text_update
from worker_sdk import HubClient, HubUnreachable, Lease, LeaseState, Worker
from worker_sdk.errors import ConfigError, RolecallError

pytestmark = pytest.mark.virtual_time

HEALTHY = always(answer(b'{"status": "ok"}'))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return new_authority(tmp_path)


def serving(certificate: Certificate) -> RawServer:
    return RawServer(HEALTHY, tls=certificate.server_context())


async def failure(url: str, ca_file: Path | None = None) -> RolecallError:
    """The error of a client's first request."""
    async with HubClient(url, ca_file=ca_file) as hub:
        with pytest.raises(RolecallError) as caught:
            await hub.health()
    return caught.value


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One item for each time that certificates of authorities are read, which is slow."""
    contexts: list[object] = []
    create: Callable[..., ssl.SSLContext] = ssl.create_default_context

    def counted(*arguments: object, **options: object) -> ssl.SSLContext:
        contexts.append((arguments, options))
        return create(*arguments, **options)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    return contexts


# --- whom it trusts


async def test_a_stream_comes_from_a_hub_whose_authority_is_trusted(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        events = frame(1, OPEN) + frame(2, text_update("hi")) + frame(3, status_update("completed", final=True))
        await peer.write(chunked_head() + events + LAST_CHUNK)

    async with (
        RawServer(script, tls=authority.certificate().server_context()) as server,
        HubClient(server.url, ca_file=authority.file) as hub,
        hub.stream_to_agent("echo", "x") as stream,
    ):
        assert [event.text async for event in stream if event.kind == "text"] == ["hi"]


async def test_a_worker_enrols_at_a_hub_whose_authority_is_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLECALL_CA_FILE", str(authority.file))
    registry = Registry()
    async with (
        RawServer(registry, tls=authority.certificate().server_context()) as server,
        Lease("echo:a", url="http://127.0.0.1:1/", hub=server.url) as lease,
    ):
        await registry.until(lambda requests: registry.count("POST") == 2)
        assert lease.state is LeaseState.READY
    assert registry.requests[-1][0] == "DELETE"


async def test_the_argument_comes_before_the_environment(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ROLECALL_CA_FILE", str(tmp_path / "absent"))
    worker, registry = Worker("echo:a"), Registry()

    @worker.on_message
    def repeat(text: str) -> str:
        return text

    async with RawServer(registry, tls=authority.certificate().server_context()) as server:
        async with worker.lease("http://127.0.0.1:1/", hub=server.url, ca_file=authority.file) as lease:
            await asyncio.wait_for(lease.ready(), 5)
        async with HubClient(server.url, ca_file=str(authority.file)) as hub:
            await hub.health()


async def test_the_file_adds_to_the_authorities_of_the_system(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = new_authority(tmp_path, "system")
    monkeypatch.setenv("SSL_CERT_FILE", str(system.file))
    for one in (authority, system):
        async with serving(one.certificate()) as server, HubClient(server.url, ca_file=authority.file) as hub:
            assert await hub.health() == {"status": "ok"}


async def test_where_the_system_has_no_authorities_those_of_httpx_are_used(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, made: list[tuple[object, dict[str, object]]], tmp_path: Path
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    paths = ssl.get_default_verify_paths()
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths._replace(cafile=None, capath=None))
    async with serving(authority.certificate()) as server, HubClient(server.url, ca_file=authority.file) as hub:
        assert await hub.health() == {"status": "ok"}
    assert certifi.where() in str(made)


@pytest.mark.parametrize(("content", "problem"), [(None, "cannot be read"), ("nonsense", "holds no certificate in PEM")])
async def test_a_file_of_the_systems_authorities_that_is_none_is_an_error_and_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, problem: str
) -> None:
    named = tmp_path / "authorities.pem"
    if content is not None:
        named.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(named))
    with pytest.raises(ConfigError, match=f"^SSL_CERT_FILE: .*{problem}"):
        async with HubClient("https://127.0.0.1:1") as hub:
            await hub.health()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "ROLECALL_CA_FILE"])
async def test_client_and_worker_trust_the_file_that_either_variable_names(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv(variable, str(authority.file))
    async with serving(authority.certificate()) as server, HubClient(server.url) as hub:
        assert await hub.health() == {"status": "ok"}
    registry = Registry()
    async with (
        RawServer(registry, tls=authority.certificate().server_context()) as server,
        Lease("echo:a", url="http://127.0.0.1:1/", hub=server.url) as lease,
    ):
        await asyncio.wait_for(lease.ready(), 5)


async def test_a_certificate_that_signed_itself_is_trusted_by_its_own_file(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    async with serving(certificate) as server, HubClient(server.url, ca_file=certificate.cert) as hub:
        assert await hub.health() == {"status": "ok"}


# --- when the authorities are read


async def test_authorities_are_read_at_the_first_request_and_once_per_process(authority: Authority, made: list[object]) -> None:
    async with serving(authority.certificate()) as server:
        clients = [HubClient(server.url, ca_file=authority.file) for _ in range(3)]
        assert made == []
        for client in clients:
            async with client as hub:
                await hub.health()
    assert len(made) == 1


async def test_for_a_hub_in_plain_http_no_authorities_are_read(made: list[object], tmp_path: Path) -> None:
    async with RawServer(HEALTHY) as server, HubClient(server.url, ca_file=tmp_path / "absent") as hub:
        assert await hub.health() == {"status": "ok"}
    assert made == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("", "holds no certificate in PEM"),
        ("certificate\n", "holds no certificate in PEM"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate in PEM"),
    ],
)
async def test_a_file_without_certificates_is_a_wrong_setting(content: str | None, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    fix = "Name a PEM file with the certificate of the hub's authority (ca_file or ROLECALL_CA_FILE)."
    error = await failure("https://127.0.0.1:9", path)
    assert (type(error), str(error)) == (ConfigError, f"ca_file: {path} {problem}. {fix}")
    with pytest.raises(ConfigError):
        async with Lease("echo:a", url="http://127.0.0.1:1/", hub="https://127.0.0.1:9", ca_file=path):
            pytest.fail("a lease must not begin with a wrong setting")


# --- what a failure means


async def test_an_expired_certificate_is_reported(authority: Authority) -> None:
    async with serving(authority.certificate(expired=True)) as server:
        error = await failure(server.url, authority.file)
        assert str(error) == f"The certificate of {server.url.rstrip('/')} has expired."
    assert (type(error), error.reason) == (HubUnreachable, "CERTIFICATE_EXPIRED")
    assert error.hint == "Give the hub a new one. If it is new, check this machine's clock."


async def test_a_certificate_that_is_not_valid_yet_is_reported(authority: Authority) -> None:
    async with serving(authority.certificate(early=True)) as server:
        error = await failure(server.url, authority.file)
    assert (error.reason, "is not valid yet" in str(error)) == ("CERTIFICATE_NOT_YET_VALID", True)
    assert error.hint.startswith("Check this machine's clock")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_certificate_for_other_names_is_reported_with_them(authority: Authority, host: str) -> None:
    async with serving(authority.certificate("hub.example", "10.0.0.1")) as server:
        error = await failure(server.url.replace("127.0.0.1", host), authority.file)
    assert error.reason == "CERTIFICATE_NAME"
    assert str(error).endswith(f" is for hub.example, 10.0.0.1, not for {host}.")
    assert error.hint == f"Use such a name in ROLECALL_HUB, or give the hub a certificate for {host}."


@pytest.mark.parametrize("chosen", [False, True])
async def test_an_unknown_authority_is_reported_with_the_variable_to_set(
    authority: Authority, chosen: bool, tmp_path: Path
) -> None:
    file = authority.file if chosen else None
    async with serving(new_authority(tmp_path, "other").certificate()) as server:
        error = await failure(server.url, file)
    assert error.reason == "CERTIFICATE_UNTRUSTED"
    assert str(error).endswith("is signed by an authority that is not trusted here.")
    missing = "the certificate of the hub's authority (CA)."
    if chosen:
        assert error.hint.startswith(f"{file} (ROLECALL_CA_FILE) does not hold {missing}")
    else:
        assert error.hint == f"Set ROLECALL_CA_FILE to a PEM file that holds {missing}"


async def test_a_certificate_that_signed_itself_is_reported_with_the_variable_to_set(tmp_path: Path) -> None:
    async with serving(self_signed(tmp_path)) as server:
        error = await failure(server.url)
    assert (error.reason, "signed by itself" in str(error)) == ("CERTIFICATE_UNTRUSTED", True)
    assert error.hint == "Set ROLECALL_CA_FILE to a PEM file that holds that certificate."


async def test_any_other_fault_of_a_certificate_is_reported_in_openssls_words(authority: Authority) -> None:
    async with serving(authority.certificate(client=True)) as server:
        error = await failure(server.url, authority.file)
    assert error.reason == "CERTIFICATE_INVALID"
    assert "purpose" in str(error)


async def test_plain_http_spoken_to_a_port_of_tls_is_reported(authority: Authority) -> None:
    async with serving(authority.certificate()) as server:
        error = await failure(server.url.replace("https", "http"))
    assert (type(error), error.reason, error.hint) == (HubUnreachable, "TLS_REQUIRED", "Write https:// in ROLECALL_HUB.")


async def test_plain_http_that_is_cut_by_a_hub_without_tls_is_not_taken_for_tls() -> None:
    async def cut(peer: Peer) -> None:
        await peer.reader.read(10)

    async with RawServer(cut) as server:
        assert "may have run" in str(await failure(server.url))


async def test_tls_spoken_to_a_port_of_plain_http_is_reported() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.reader.read(10)
        await peer.write(answer(b"", status="400 Bad Request"))

    async with RawServer(refuse) as server:
        error = await failure(server.url.replace("http", "https"))
    assert (error.reason, error.hint) == ("NOT_TLS", "If it serves plain HTTP, write http:// in ROLECALL_HUB.")


@pytest.mark.parametrize("cut", [True, False])
async def test_a_handshake_that_is_cut_or_not_answered_is_reported(cut: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(10)
        if not cut:
            await peer.gone()

    async with RawServer(script) as server:
        error = await failure(server.url.replace("http", "https"))
    assert error.reason == "TLS_FAILED"
    assert error.hint == "Does that port serve TLS? If not, write http:// in ROLECALL_HUB."


async def test_an_absent_hub_is_unreachable_as_in_plain_http(authority: Authority) -> None:
    async with serving(authority.certificate()) as gone:
        pass
    error = await failure(gone.url, authority.file)
    assert (error.reason, str(error)) == (
        "HUB_UNREACHABLE",
        f"No hub answers at {gone.url.rstrip('/')}: nothing listens there (connection refused).",
    )


async def test_a_worker_that_cannot_trust_its_hub_reports_what_to_do(authority: Authority) -> None:
    changes: asyncio.Queue[tuple[LeaseState, str]] = asyncio.Queue()
    async with (
        serving(authority.certificate()) as server,
        Lease("echo:a", url="http://127.0.0.1:1/", hub=server.url, on_change=lambda *change: changes.put_nowait(change)),
    ):
        state, reason = await asyncio.wait_for(changes.get(), 5)
    assert state is LeaseState.ENROLLING
    assert reason.endswith("Set ROLECALL_CA_FILE to a PEM file that holds the certificate of the hub's authority (CA).")
