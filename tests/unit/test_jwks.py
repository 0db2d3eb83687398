"""Keys of an issuer: when they are fetched, and what holds when they can't be."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from contracts.errors import StageFailed
from deployments.identity.caller import Refused
from deployments.identity.config import JwtSettings
from deployments.identity.jwks import Jwks, source
from deployments.identity.tokens import open_verifier
from tests.support.issuer import AUDIENCE, ISSUER, Issuer

issuer = Issuer()


class FakeSource:
    """What is fetched, how often, and under which clock."""

    def __init__(self) -> None:
        self.text: str | None = issuer.jwks()
        self.fetches = 0
        self.now = 1000.0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> str:
        self.fetches += 1
        await self.gate.wait()
        if self.text is None:
            raise OSError("down")
        return self.text

    def jwks(self, timeout_s: float = 30) -> Jwks:
        return Jwks(self, ("RS256", "ES256"), max_age_s=300, refresh_s=10, timeout_s=timeout_s, clock=lambda: self.now)


@pytest.fixture
def fetched() -> FakeSource:
    return FakeSource()


async def test_keys_are_fetched_once_and_kept(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    found = await asyncio.gather(*(jwks.find("RS256", "r1") for _ in range(10)))
    fetched.now += 149
    found.append(await jwks.find("RS256", "r1"))
    assert {key.key_id for key in found} == {"r1"}
    assert fetched.fetches == 1


async def test_a_new_key_is_found_as_soon_as_a_token_names_it(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    await jwks.find("RS256", "r1")
    fetched.text = issuer.jwks(rsa="r2")
    fetched.now += 11
    assert (await jwks.find("RS256", "r2")).key_id == "r2"
    with pytest.raises(Refused):
        await jwks.find("RS256", "r1")


async def test_unknown_keys_make_no_more_fetches_than_one_every_while(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    for number in range(100):
        fetched.now += 0.5
        with pytest.raises(Refused):
            await jwks.find("RS256", f"unknown-{number}")
    assert fetched.fetches == 5


async def test_when_the_issuer_is_down_the_last_keys_hold(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    await jwks.find("RS256", "r1")
    fetched.text = None
    for _ in range(5):
        fetched.now += 301
        assert await jwks.find("RS256", "r1")
        with pytest.raises(Refused):
            await jwks.find("RS256", "r2")
    assert fetched.fetches >= 5


@pytest.mark.parametrize("text", ["", "{}", '{"keys": 7}', "[]", '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'])
async def test_garbage_does_not_push_out_good_keys(fetched: FakeSource, text: str) -> None:
    jwks = fetched.jwks()
    await jwks.find("RS256", "r1")
    fetched.text, fetched.now = text, fetched.now + 301
    with pytest.raises(Refused):
        await jwks.find("RS256", "r2")
    assert fetched.fetches == 2
    assert await jwks.find("RS256", "r1")


async def test_known_keys_do_not_wait_for_a_fetch(fetched: FakeSource) -> None:
    """At half their age, the fetch runs beside the requests."""
    jwks = fetched.jwks()
    await jwks.find("RS256", "r1")
    fetched.gate.clear()
    fetched.now += 299
    assert await jwks.find("RS256", "r1")
    assert await jwks.find("ES256", "e1")
    fetched.gate.set()


@pytest.mark.parametrize("quiet", [301, 86_400])
async def test_a_key_taken_out_holds_no_longer_than_the_age_however_quiet_it_was(
    fetched: FakeSource, quiet: float
) -> None:
    jwks = fetched.jwks()
    await jwks.find("RS256", "r1")
    fetched.text = issuer.jwks(rsa="r2")
    fetched.now += quiet
    fetched.gate.clear()
    asked = [asyncio.create_task(jwks.find("RS256", "r1")) for _ in range(3)]
    await asyncio.sleep(0)
    fetched.gate.set()
    assert [type(answer) for answer in await asyncio.gather(*asked, return_exceptions=True)] == [Refused] * 3


async def test_while_the_issuer_hangs_the_last_keys_make_wait_once_and_no_more(fetched: FakeSource) -> None:
    jwks = fetched.jwks(timeout_s=0.05)
    await jwks.find("RS256", "r1")
    fetched.gate.clear()
    fetched.now += 301
    assert await jwks.find("RS256", "r1")
    fetched.now += 11
    waiting = asyncio.create_task(jwks.find("RS256", "r1"))
    await asyncio.sleep(0)
    assert waiting.done()
    assert fetched.fetches == 2


async def test_a_fetch_that_hangs_ends_at_its_time_out(fetched: FakeSource) -> None:
    jwks = fetched.jwks(timeout_s=0.05)
    fetched.gate.clear()
    with pytest.raises(StageFailed):
        await jwks.find("RS256", "r1")


async def test_a_client_that_hangs_up_does_not_stop_the_fetch_for_others(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    fetched.gate.clear()
    first, second = (asyncio.create_task(jwks.find("RS256", "r1")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    fetched.gate.set()
    assert (await second).key_id == "r1"
    assert first.cancelled()


async def test_while_there_never_were_keys_it_is_not_the_token_that_is_wrong(fetched: FakeSource) -> None:
    fetched.text = None
    jwks = fetched.jwks()
    with pytest.raises(StageFailed):
        await jwks.find("RS256", "r1")
    fetched.text, fetched.now = issuer.jwks(), fetched.now + 10
    assert await jwks.find("RS256", "r1")


async def test_a_token_that_names_no_key_means_the_only_one_of_its_algorithm(fetched: FakeSource) -> None:
    jwks = fetched.jwks()
    assert (await jwks.find("ES256", None)).key_id == "e1"
    fetched.text = issuer.jwks().replace("]}", "," + Issuer().jwks(rsa="r2", ec="e2")[len('{"keys": [') :])
    fetched.now += 301
    with pytest.raises(Refused):
        await jwks.find("RS256", "r9")
    with pytest.raises(Refused):
        await jwks.find("ES256", None)


async def test_a_key_for_encryption_verifies_nothing(fetched: FakeSource) -> None:
    fetched.text = issuer.jwks().replace('"use": "sig"', '"use": "enc"')
    with pytest.raises(Refused):
        await fetched.jwks().find("RS256", "r1")


class Handler(BaseHTTPRequestHandler):
    """Answers with the keys, a redirect, an error, or a byte at a time for as long as somebody listens."""

    deserted = threading.Event()

    def do_GET(self) -> None:
        status = {"/jwks": 200, "/trickle": 200, "/moved": 302}.get(self.path, 500)
        self.send_response(status)
        self.send_header("location", "/jwks")
        self.end_headers()
        if self.path == "/trickle":
            with suppress(OSError):
                while True:
                    self.wfile.write(b" ")
            self.deserted.set()
        else:
            self.wfile.write(issuer.jwks().encode())

    def log_message(self, *_: object) -> None:
        """Not into the test's output."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=[0.01], daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def settings_of(url: str) -> JwtSettings:
    return JwtSettings(issuer=ISSUER, audience=(AUDIENCE,), algorithms=("RS256", "ES256"), jwks_url=url)


async def test_keys_come_from_a_url(server: str) -> None:
    verifier = await open_verifier(settings_of(f"{server}/jwks"), None)
    assert (await verifier.verify(issuer.token(account="acme"), "r")).context.account_id == "acme"


async def test_an_error_and_a_redirect_are_no_keys(server: str) -> None:
    for path in ("/moved", "/broken"):
        jwks = Jwks(source(settings_of(server + path)), ("RS256",), max_age_s=300, refresh_s=10, timeout_s=10)
        with pytest.raises(StageFailed):
            await jwks.find("RS256", "r1")


async def test_a_url_that_trickles_is_left_when_time_is_up(server: str) -> None:
    """The connection is closed: nothing of the fetch goes on."""
    jwks = Jwks(source(settings_of(f"{server}/trickle")), ("RS256",), max_age_s=300, refresh_s=10, timeout_s=0.2)
    with pytest.raises(StageFailed):
        await jwks.find("RS256", "r1")
    assert await asyncio.to_thread(Handler.deserted.wait)


async def test_a_url_that_is_down_does_not_keep_the_service_from_starting(server: str) -> None:
    """API keys hold all the same."""
    verifier = await open_verifier(settings_of(f"{server}/broken"), None)
    with pytest.raises(StageFailed):
        await verifier.verify(issuer.token(account="acme"), "r")
