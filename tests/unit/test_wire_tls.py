"""The wire under TLS: nothing in the clear, and both ends show who they are."""

import asyncio
import ssl
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deployments.environment import Environment
from deployments.wire.frames import Kind
from deployments.wire.lines import Line, Lines
from deployments.wire.listener import Address
from deployments.wire.tls import Certificates
from tests.support.certificates import Authority, ray_tls
from tests.support.wire import HOST, Collects, FakeFind, Listen, echo, where


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs")


@pytest.fixture(scope="module")
def node(authority: Authority) -> Certificates:
    return authority.certify(HOST, "10.1.2.3")


class Tap(Collects):
    """Keeps the bytes that come, whatever they mean."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = b""

    def data_received(self, data: bytes) -> None:
        self.raw += data


async def knock(address: Address, tls: ssl.SSLContext | None) -> Tap:
    """Say the token and make a call, as whoever knows it would, and wait until the other end hangs up."""
    name = address.host if tls else None
    _, tap = await asyncio.get_running_loop().create_connection(
        Tap, address.host, address.port, ssl=tls, server_hostname=name
    )
    tap.send(Kind.HELLO, body=address.token)
    tap.send(Kind.CALL, 1, b"secret")
    await tap.gone.wait()
    return tap


@pytest.mark.parametrize("size", [0, 1, 3 * 2**20], ids=["nothing", "a byte", "megabytes"])
async def test_calls_go_and_come_back_whole(listen: Listen, node: Certificates, size: int) -> None:
    line = await Line.open(where(await listen(echo, tls=node.server())), node.client())
    payloads = [bytes([number]) * size for number in range(5)]
    assert await asyncio.gather(*map(line.call, payloads)) == payloads
    line.abort()


async def test_what_goes_over_can_not_be_read_on_the_way(listen: Listen, node: Certificates) -> None:
    address, seen = where(await listen(echo, tls=node.server())), bytearray()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(address.host, address.port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            seen.extend(data)
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(between, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        line = await Line.open(Address(HOST, port, address.token), node.client())
        assert await line.call(b"what is in the minutes") == b"what is in the minutes"
        line.close()
    assert len(seen) > 100
    assert b"minutes" not in seen and address.token not in seen


async def test_who_speaks_in_the_clear_gets_no_answer_though_it_knows_the_token(
    listen: Listen, node: Certificates
) -> None:
    tap = await knock(where(await listen(echo, tls=node.server())), None)
    assert b"secret" not in tap.raw


@pytest.mark.parametrize("shows", ["nothing", "a stranger's certificate"])
async def test_who_shows_no_certificate_of_ours_is_sent_away_though_it_knows_the_token(
    listen: Listen, node: Certificates, stranger: Authority, shows: str
) -> None:
    tls = ssl.create_default_context(cafile=str(node.authority))
    if shows != "nothing":
        theirs = stranger.certify(HOST)
        tls.load_cert_chain(theirs.chain, theirs.key)
    assert (await knock(where(await listen(echo, tls=node.server())), tls)).raw == b""


@pytest.mark.parametrize("of", ["another authority", "another address"])
async def test_a_replica_with_a_certificate_of_something_else_gets_no_call_and_no_token(
    listen: Listen, node: Certificates, authority: Authority, stranger: Authority, of: str
) -> None:
    wrong = stranger.certify(HOST) if of == "another authority" else authority.certify("10.9.9.9")
    listener, missed = await listen(echo, tls=wrong.server()), []
    with pytest.raises(ssl.SSLCertVerificationError):
        await Line.open(where(listener), node.client())
    lines = Lines(FakeFind(where(listener)), lambda: missed.append(1), node.client())
    await lines.look()
    assert (lines.best(), missed) == (None, [1])


async def test_a_caller_without_tls_finds_no_replica_that_has_it(listen: Listen, node: Certificates) -> None:
    lines = Lines(FakeFind(where(await listen(echo, tls=node.server()))))
    await lines.look()
    assert lines.best() is None


async def test_who_connects_and_says_nothing_is_sent_away(
    listen: Listen, node: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.wire.listener._HELLO_S", 0.05)
    address = where(await listen(echo, tls=node.server()))
    reader, writer = await asyncio.open_connection(address.host, address.port)
    assert await reader.read() == b""
    writer.close()


def environment(certificates: Certificates, **changes: str) -> Environment:
    return Environment.read(ray_tls(certificates) | changes)


@pytest.mark.parametrize("says", ["1", "true", "True"])
async def test_where_ray_uses_tls_the_wire_does_with_the_same_certificates(
    listen: Listen, node: Certificates, says: str
) -> None:
    variables = environment(node, RAY_USE_TLS=says)
    listener = await listen(echo, tls=variables.wire_tls("server"))
    line = await Line.open(where(listener), variables.wire_tls("client"))
    assert await line.call(b"x") == b"x"
    line.abort()


@pytest.mark.parametrize("says", ["", "0", "false"])
def test_where_ray_does_not_the_wire_does_not(node: Certificates, says: str) -> None:
    assert environment(node, RAY_USE_TLS=says).wire_tls("server") is None
    assert environment(node, RAY_USE_TLS=says).wire_tls("client") is None


@pytest.mark.parametrize("end", ["server", "client"])
@pytest.mark.parametrize("variable", ["RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"])
@pytest.mark.parametrize("value", ["", "absent.pem", "nonsense.pem"])
def test_without_a_certificate_nothing_starts_in_the_clear(
    node: Certificates, tmp_path: Path, end: str, variable: str, value: str
) -> None:
    (tmp_path / "nonsense.pem").write_text("nonsense", encoding="utf-8")
    broken = environment(node, **{variable: str(tmp_path / value) if value else ""})
    with pytest.raises(ConfigError) as caught:
        broken.wire_tls(end)  # type: ignore[arg-type]
    assert caught.value.field == "RAY_USE_TLS"
    assert "RAY_TLS_SERVER_CERT" in caught.value.remedy
