"""From the header to a caller: which credentials are which, and that a refusal tells nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.errors import ConfigError, Unauthenticated
from deployments.identity.authenticator import Authenticator, open_authenticator
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import KeyStore
from tests.support.issuer import AUDIENCE, ISSUER, claims_of, hs256
from tests.support.waiting import until

SECRET = "s" * 40
JWT = IdentitySettings.model_validate({"jwt": {"issuer": ISSUER, "audience": [AUDIENCE], "algorithms": ["HS256"]}})


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.db")


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
async def authenticator(keys: KeyStore, refused: list[str]) -> AsyncIterator[Authenticator]:
    yield await open_authenticator(keys, JWT, SECRET, refused.append)
    keys.close()


def token(**claims: object) -> str:
    return hs256(claims_of(**claims), SECRET.encode())


async def test_what_begins_like_a_key_is_one_and_all_else_is_a_jwt(
    authenticator: Authenticator, keys: KeyStore
) -> None:
    made, key = keys.create("acme", user_space="user:alice")
    by_key = await authenticator.authenticate(f"Bearer {made}", "r1")
    assert (by_key.context.account_id, by_key.context.request_id, by_key.key) == ("acme", "r1", key.key_id)
    by_token = await authenticator.authenticate(f"bearer  {token(account='rival')} ", "r2")
    assert (by_token.context.account_id, by_token.context.request_id) == ("rival", "r2")


async def test_without_an_issuer_no_jwt_is_taken(keys: KeyStore, refused: list[str]) -> None:
    only_keys = await open_authenticator(keys, IdentitySettings(), SECRET, refused.append)
    with pytest.raises(Unauthenticated):
        await only_keys.authenticate(f"Bearer {token(account='acme')}", "r")
    assert refused == ["key_unknown"]


async def test_every_refusal_reads_the_same_and_is_counted_by_its_reason(
    authenticator: Authenticator, keys: KeyStore, refused: list[str]
) -> None:
    revoked, key = keys.create("acme")
    keys.revoke(key.key_id)
    expired, _ = keys.create("acme", expires_at=1)
    bodies = set()
    for credentials in (
        revoked,
        expired,
        "strata_no_such",
        "nonsense",
        token(account="acme", exp=1),
        token(role="user"),
    ):
        with pytest.raises(Unauthenticated) as caught:
            await authenticator.authenticate(f"Bearer {credentials}", "r")
        error = caught.value
        bodies.add((error.code, error.message, error.field, error.remedy, error.stage, error.retryable))
    assert len(bodies) == 1
    assert refused == ["key_revoked", "key_expired", "key_unknown", "jwt_malformed", "jwt_expired", "jwt_account"]


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic eDp5", "strata_1_2"])
async def test_no_credentials_are_told_apart_from_wrong_ones(
    authenticator: Authenticator, refused: list[str], header: str
) -> None:
    with pytest.raises(Unauthenticated, match="no credentials"):
        await authenticator.authenticate(header, "r")
    assert refused == ["missing"]


async def test_the_use_of_a_key_is_noted_once_a_minute(
    authenticator: Authenticator, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = []
    monkeypatch.setattr(keys, "note_use", noted.append)
    made = [keys.create("acme") for _ in range(2)]
    for credentials, _ in made * 5:
        await authenticator.authenticate(f"Bearer {credentials}", "r")
    await until(lambda: len(noted) >= 2)
    assert sorted(noted) == sorted(key.key_id for _, key in made)


async def test_a_key_that_was_used_is_listed_so(authenticator: Authenticator, keys: KeyStore) -> None:
    credentials, _ = keys.create("acme")
    await authenticator.authenticate(f"Bearer {credentials}", "r")
    await until(lambda: keys.list()[0].used_at)


async def test_a_missing_secret_is_refused_at_start(keys: KeyStore) -> None:
    with pytest.raises(ConfigError):
        await open_authenticator(keys, JWT, None, print)
