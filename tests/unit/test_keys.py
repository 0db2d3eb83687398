import sqlite3
import time
from pathlib import Path

import pytest

from contracts.errors import InvalidInput, Unauthenticated
from deployments.identity.caller import Refused
from deployments.identity.keys import KeyStore


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "data" / "keys.db")


def test_a_key_gives_the_identity_it_was_made_for(store: KeyStore) -> None:
    """C20: account, role and spaces come from the credentials."""
    token, _ = store.create("acme", user_space="user:alice", agent_space="agent:bot", spaces=["team", "project:x"])
    ctx = store.authenticate(token).context("r1")
    assert ctx.account_id == "acme"
    assert ctx.owner_spaces() == ("agent:bot", "project:x", "shared", "team", "user:alice")
    assert ctx.request_id == "r1"


def test_a_secret_is_nowhere_in_the_file(store: KeyStore, tmp_path: Path) -> None:
    token, _ = store.create("acme")
    store.close()
    files = list((tmp_path / "data").iterdir())
    assert files
    assert not any(token.split("_", 2)[2].encode() in file.read_bytes() for file in files)


def test_the_file_is_for_its_owner_only(store: KeyStore, tmp_path: Path) -> None:
    assert (tmp_path / "data" / "keys.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("alter", [lambda t: "", lambda t: t[:-1], lambda t: t + "x", lambda t: t[7:], str.upper])
def test_anything_but_the_key_itself_is_refused(store: KeyStore, alter: object) -> None:
    token, _ = store.create("acme")
    with pytest.raises(Unauthenticated):
        store.authenticate(alter(token))  # type: ignore[operator]


def test_the_secret_of_one_key_does_not_open_another(store: KeyStore) -> None:
    first, _ = store.create("acme")
    _, other = store.create("globex")
    with pytest.raises(Unauthenticated):
        store.authenticate(f"strata_{other.key_id}_{first.split('_', 2)[2]}")


def test_a_revoked_key_is_refused_at_once_by_another_process_reading_the_file(store: KeyStore, tmp_path: Path) -> None:
    token, key = store.create("acme")
    reader = KeyStore(tmp_path / "data" / "keys.db")
    assert reader.authenticate(token).account_id == "acme"
    assert store.revoke(key.key_id)
    with pytest.raises(Unauthenticated):
        reader.authenticate(token)
    assert not store.revoke(key.key_id)
    assert not store.revoke("unknown")


def test_an_expired_key_is_refused(store: KeyStore) -> None:
    past, _ = store.create("acme", expires_at=int(time.time() * 1000) - 1)
    future, _ = store.create("acme", expires_at=int(time.time() * 1000) + 3_600_000)
    with pytest.raises(Unauthenticated):
        store.authenticate(past)
    assert store.authenticate(future).active()


def test_a_rotated_key_has_a_successor_of_the_same_identity_and_holds_for_the_overlap(store: KeyStore) -> None:
    token, old = store.create("acme", role="agent", agent_space="agent:bot", spaces=["team"])
    fresh, new = store.rotate(old.key_id, overlap_ms=3_600_000)
    assert store.authenticate(fresh).context("r") == store.authenticate(token).context("r")
    assert new.key_id != old.key_id
    listed = {key.key_id: key for key in store.list()}
    assert listed[old.key_id].ends_at == pytest.approx(time.time() * 1000 + 3_600_000, abs=60_000)
    assert listed[new.key_id].ends_at == 0


def test_without_an_overlap_the_old_key_ends_at_once(store: KeyStore) -> None:
    token, old = store.create("acme")
    fresh, _ = store.rotate(old.key_id, overlap_ms=0)
    with pytest.raises(Refused) as caught:
        store.authenticate(token)
    assert caught.value.reason == "key_revoked"
    assert store.authenticate(fresh)


def test_a_successor_lives_as_long_as_the_old_key_did_and_that_no_longer_for_its_overlap(store: KeyStore) -> None:
    hour = 3_600_000
    _, old = store.create("acme", expires_at=int(time.time() * 1000) + hour)
    _, new = store.rotate(old.key_id, overlap_ms=24 * hour)
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    assert next(key for key in store.list() if key.key_id == old.key_id).ends_at == old.expires_at


def test_only_an_active_key_is_rotated_and_only_once(store: KeyStore) -> None:
    _, revoked = store.create("acme")
    store.revoke(revoked.key_id)
    _, expired = store.create("acme", expires_at=1)
    _, rotated = store.create("acme")
    store.rotate(rotated.key_id, overlap_ms=60_000)
    before = store.list()
    for key_id in (revoked.key_id, expired.key_id, rotated.key_id, "unknown"):
        with pytest.raises(InvalidInput):
            store.rotate(key_id, overlap_ms=60_000)
    assert store.list() == before


def test_a_rotated_key_can_be_revoked_before_its_overlap_is_over(store: KeyStore) -> None:
    token, old = store.create("acme")
    store.rotate(old.key_id, overlap_ms=60_000)
    assert store.revoke(old.key_id)
    with pytest.raises(Unauthenticated):
        store.authenticate(token)
    assert not store.revoke(old.key_id)


def test_the_last_use_of_a_key_is_listed(store: KeyStore) -> None:
    _, used = store.create("acme")
    _, unused = store.create("acme")
    store.note_use(used.key_id)
    listed = {key.key_id: key.used_at for key in store.list()}
    assert listed[used.key_id] == pytest.approx(time.time() * 1000, abs=60_000)
    assert listed[unused.key_id] == 0


def test_a_use_that_can_not_be_written_is_not_missed(store: KeyStore, tmp_path: Path) -> None:
    _, key = store.create("acme")
    store.close()
    (tmp_path / "data" / "keys.db").write_bytes(b"no database at all, but long enough to be looked at as one")
    store.note_use(key.key_id)


def test_keys_are_listed_without_secrets(store: KeyStore) -> None:
    tokens = [store.create("acme", role="admin")[0], store.create("globex")[0]]
    listed = store.list()
    assert {key.account_id for key in listed} == {"acme", "globex"}
    assert not any(token.split("_", 2)[2] in repr(listed) for token in tokens)


@pytest.mark.parametrize("space", ["a/b", "a b", "..", "A", "strata://x", "a\nb", ""])
def test_a_malformed_space_is_refused(store: KeyStore, space: str) -> None:
    if space:
        with pytest.raises(InvalidInput):
            store.create("acme", spaces=[space])
    else:
        assert store.create("acme", user_space=space)[1].user_space == ""


def test_a_key_needs_an_account_and_a_known_role(store: KeyStore) -> None:
    with pytest.raises(InvalidInput):
        store.create(" ")
    with pytest.raises(InvalidInput):
        store.create("acme", role="root")  # type: ignore[arg-type]


def test_a_hostile_token_is_only_a_wrong_one(store: KeyStore, tmp_path: Path) -> None:
    store.create("acme")
    for token in ["strata_' OR 1=1 --_x", "strata__", "strata_\x00_\x00", "strata_" + "a" * 100_000, "strata_é_é"]:
        with pytest.raises(Unauthenticated):
            store.authenticate(token)
    with sqlite3.connect(tmp_path / "data" / "keys.db") as db:
        assert db.execute("SELECT count(*) FROM keys").fetchone() == (1,)
