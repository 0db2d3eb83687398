"""API keys on both databases, looked up as an ingress does it."""

import time
from collections.abc import Callable

import msgspec
import pytest
from sqlalchemy import func, select

from contracts.errors import InvalidInput
from database.config import DatabaseConfig
from database.engine import Database
from database.tables import api_keys
from deployments.identity.caller import Refused
from deployments.identity.config import KeysSettings
from deployments.identity.keys import ApiKey, KeyStore
from deployments.identity.lookup import make_lookup

HOUR = 3_600_000


def ingress(database: Database, cache_s: float = 0) -> KeyStore:
    """The keys of one more ingress."""
    return KeyStore(database, make_lookup(database, KeysSettings(cache_s=cache_s)))


@pytest.fixture
def store(database: Database) -> KeyStore:
    return ingress(database)


async def reason(store: KeyStore, token: str) -> str:
    with pytest.raises(Refused) as caught:
        await store.authenticate(token)
    return caught.value.reason


def now() -> int:
    return int(time.time() * 1000)


async def listed(store: KeyStore) -> dict[str, ApiKey]:
    return {key.key_id: key for key in await store.list()}


async def test_a_key_gives_the_identity_it_was_made_for(store: KeyStore) -> None:
    """C20: account, role and spaces come from the credentials."""
    spaces = ["team", "project:x"]
    token, made = await store.create("acme", user_space="user:alice", agent_space="agent:bot", spaces=spaces)
    key = await store.authenticate(token)
    assert key == made
    ctx = key.context("r1")
    assert ctx.account_id == "acme"
    assert ctx.owner_spaces() == ("agent:bot", "project:x", "shared", "team", "user:alice")
    assert ctx.request_id == "r1"


@pytest.mark.parametrize("alter", [lambda t: "", lambda t: t[:-1], lambda t: t + "x", lambda t: t[7:], str.upper])
async def test_anything_but_the_key_itself_is_refused(store: KeyStore, alter: Callable[[str], str]) -> None:
    token, _ = await store.create("acme")
    assert await reason(store, alter(token)) == "key_unknown"


async def test_the_secret_of_one_key_does_not_open_another(store: KeyStore) -> None:
    first, _ = await store.create("acme")
    _, other = await store.create("globex")
    assert await reason(store, f"strata_{other.key_id}_{first.split('_', 2)[2]}") == "key_unknown"


async def test_a_hostile_token_is_only_a_wrong_one(store: KeyStore, database: Database) -> None:
    await store.create("acme")
    hostile = ["strata_' OR 1=1 --_x", "strata__", "strata_\x00_\x00", "strata_é_é", "strata_\ud800_x", "strata_%_%"]
    for token in [*hostile, "strata_" + "a" * 100_000, "strata_" + "a" * 32 + "_" + "x" * 100_000]:
        assert await reason(store, token) == "key_unknown"
    async with database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(api_keys)) == 1


async def test_a_key_holds_and_is_revoked_at_once_on_all_nodes_that_remember_nothing(
    store: KeyStore, database_url: str
) -> None:
    """C20."""
    other_node = await Database.open(database_url, DatabaseConfig())
    try:
        reader = ingress(other_node)
        token, key = await store.create("acme")
        assert await reader.authenticate(token) == key
        assert await store.revoke(key.key_id)
        assert await reason(reader, token) == "key_revoked"
    finally:
        await other_node.close()


async def test_only_what_holds_is_revoked(store: KeyStore) -> None:
    _, key = await store.create("acme")
    assert await store.revoke(key.key_id)
    assert not await store.revoke(key.key_id)
    for other in ("unknown", "", "\ud800", "x" * 1000):
        assert not await store.revoke(other)


async def test_an_expired_key_is_refused(store: KeyStore) -> None:
    past, _ = await store.create("acme", expires_at=now() - 1)
    future, _ = await store.create("acme", expires_at=now() + HOUR)
    assert await reason(store, past) == "key_expired"
    assert (await store.authenticate(future)).active()


async def test_a_rotated_key_has_a_successor_of_the_same_identity_and_holds_for_the_overlap(store: KeyStore) -> None:
    token, old = await store.create("acme", role="agent", agent_space="agent:bot", spaces=["team"])
    fresh, new = await store.rotate(old.key_id, overlap_ms=HOUR)
    assert (await store.authenticate(fresh)).context("r") == (await store.authenticate(token)).context("r")
    assert new.key_id != old.key_id
    keys = await listed(store)
    assert keys[old.key_id].ends_at == pytest.approx(now() + HOUR, abs=60_000)
    assert keys[new.key_id].ends_at == 0


async def test_without_an_overlap_the_old_key_ends_at_once(store: KeyStore) -> None:
    token, old = await store.create("acme")
    fresh, _ = await store.rotate(old.key_id, overlap_ms=0)
    assert await reason(store, token) == "key_revoked"
    assert await store.authenticate(fresh)


async def test_a_successor_lives_as_long_as_the_old_key_did_and_that_no_longer_for_its_overlap(
    store: KeyStore,
) -> None:
    _, old = await store.create("acme", expires_at=now() + HOUR)
    _, new = await store.rotate(old.key_id, overlap_ms=24 * HOUR)
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    assert (await listed(store))[old.key_id].ends_at == old.expires_at


async def test_only_an_active_key_is_rotated_and_only_once(store: KeyStore) -> None:
    _, revoked = await store.create("acme")
    await store.revoke(revoked.key_id)
    _, expired = await store.create("acme", expires_at=1)
    _, rotated = await store.create("acme")
    await store.rotate(rotated.key_id, overlap_ms=60_000)
    before = await store.list()
    for key_id in (revoked.key_id, expired.key_id, rotated.key_id, "unknown", "\ud800"):
        with pytest.raises(InvalidInput):
            await store.rotate(key_id, overlap_ms=60_000)
    assert await store.list() == before


async def test_a_rotated_key_can_be_revoked_before_its_overlap_is_over(store: KeyStore) -> None:
    token, old = await store.create("acme")
    await store.rotate(old.key_id, overlap_ms=60_000)
    assert await store.revoke(old.key_id)
    assert await reason(store, token) == "key_revoked"
    assert not await store.revoke(old.key_id)


async def test_the_last_use_of_keys_is_listed(store: KeyStore) -> None:
    _, used = await store.create("acme")
    _, unused = await store.create("acme")
    await store.note_uses([used.key_id])
    keys = await listed(store)
    assert keys[used.key_id].used_at == pytest.approx(now(), abs=60_000)
    assert keys[unused.key_id].used_at == 0


async def test_keys_are_listed_oldest_first_and_without_secrets(store: KeyStore) -> None:
    tokens = [(await store.create(account))[0] for account in ("acme", "globex")]
    keys = await store.list()
    assert [key.created_at for key in keys] == sorted(key.created_at for key in keys)
    assert {key.account_id for key in keys} == {"acme", "globex"}
    assert not any(token.split("_", 2)[2] in repr(keys) for token in tokens)


@pytest.mark.parametrize("space", ["a/b", "a b", "..", "A", "strata://x", "a\nb"])
async def test_a_malformed_space_is_refused(store: KeyStore, space: str) -> None:
    with pytest.raises(InvalidInput):
        await store.create("acme", spaces=[space])


async def test_a_key_needs_an_account_and_a_known_role(store: KeyStore) -> None:
    for account in ("", " ", "a\0b", "\ud800"):
        with pytest.raises(InvalidInput):
            await store.create(account)
    with pytest.raises(InvalidInput):
        await store.create("acme", role="root")  # type: ignore[arg-type]


async def test_a_known_key_that_is_adopted_again_keeps_the_earlier_revocation(store: KeyStore) -> None:
    tokens = [(await store.create("acme"))[0] for _ in range(3)]
    here, there, nowhere = (token.split("_")[1] for token in tokens)
    before = await store.find([here, there, nowhere])
    await store.revoke(here)
    await store.adopt(before.values())
    ended = msgspec.structs.replace(before[there].key, revoked_at=now())
    await store.adopt([before[there]._replace(key=ended)])
    await store.adopt(before.values())
    assert [await reason(store, token) for token in tokens[:2]] == ["key_revoked", "key_revoked"]
    assert await store.authenticate(tokens[2])
