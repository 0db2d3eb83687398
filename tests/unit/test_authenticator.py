"""From the header to a caller: which credentials are which, and that a refusal tells nothing."""

from collections.abc import Collection

import pytest

from contracts.errors import ConfigError, DatabaseDown, Unauthenticated
from deployments.identity.authenticator import Authenticator, open_authenticator
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import KeyStore
from tests.support.issuer import AUDIENCE, ISSUER, claims_of, hs256
from tests.support.waiting import until

SECRET = "s" * 40
JWT = IdentitySettings.model_validate({"jwt": {"issuer": ISSUER, "audience": [AUDIENCE], "algorithms": ["HS256"]}})


@pytest.fixture
def keys(key_store: KeyStore) -> KeyStore:
    return key_store


@pytest.fixture
def refused() -> list[str]:
    return []


@pytest.fixture
async def authenticator(keys: KeyStore, refused: list[str]) -> Authenticator:
    return await open_authenticator(keys, JWT, SECRET, refused.append)


def token(**claims: object) -> str:
    return hs256(claims_of(**claims), SECRET.encode())


async def test_what_begins_like_a_key_is_one_and_all_else_is_a_jwt(
    authenticator: Authenticator, keys: KeyStore
) -> None:
    made, key = await keys.create("acme", user_space="user:alice")
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
    revoked, key = await keys.create("acme")
    await keys.revoke(key.key_id)
    expired, _ = await keys.create("acme", expires_at=1)
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
    noted: list[str] = []

    async def note_uses(key_ids: Collection[str]) -> None:
        noted.extend(key_ids)

    monkeypatch.setattr(keys, "note_uses", note_uses)
    made = [await keys.create("acme") for _ in range(2)]
    for credentials, _ in made * 5:
        await authenticator.authenticate(f"Bearer {credentials}", "r")
    await until(lambda: len(noted) >= 2)
    assert sorted(noted) == sorted(key.key_id for _, key in made)


async def test_a_key_that_was_used_is_listed_so(authenticator: Authenticator, keys: KeyStore) -> None:
    credentials, _ = await keys.create("acme")
    await authenticator.authenticate(f"Bearer {credentials}", "r")

    async def listed() -> int:
        return (await keys.list())[0].used_at

    await until(listed)


@pytest.mark.parametrize(
    "error", [DatabaseDown("The database db.internal:5432 can't be asked."), ConfigError("Behind.")]
)
async def test_while_keys_can_not_be_looked_up_nobody_is_let_in_and_no_stranger_learns_why(
    authenticator: Authenticator, keys: KeyStore, refused: list[str], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    credentials, _ = await keys.create("acme")

    async def find(key_id: str) -> None:
        raise error

    keys._find = find
    with pytest.raises(DatabaseDown) as caught:
        await authenticator.authenticate(f"Bearer {credentials}", "r")
    assert (caught.value.code, caught.value.http_status, caught.value.retryable) == ("RET-5031", 503, True)
    assert str(error) in caplog.text
    assert error.args[0] not in str(caught.value)
    assert refused == ["key_not_looked_up"]
    assert (await authenticator.authenticate(f"Bearer {token(account='acme')}", "r")).context.account_id == "acme"


async def test_a_missing_secret_is_refused_at_start(keys: KeyStore) -> None:
    with pytest.raises(ConfigError):
        await open_authenticator(keys, JWT, None, print)
