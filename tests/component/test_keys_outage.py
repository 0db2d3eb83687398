"""API keys in a PostgreSQL that stops or hangs: nobody is let in by mistake, and who is known goes on for a moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.errors import DatabaseDown, Unauthenticated
from database.config import DatabaseConfig
from database.engine import Database
from deployments.identity.authenticator import Authenticator
from deployments.identity.config import KeysSettings
from deployments.identity.keys import KeyStore
from deployments.identity.lookup import make_lookup
from tests.support.postgres import Postgres


@pytest.fixture
async def database(own_postgres: Postgres) -> AsyncIterator[Database]:
    database = await Database.open(own_postgres.url, DatabaseConfig(migrate_at_start=True))
    yield database
    await database.close()


def ingress(database: Database, cache_s: float) -> Authenticator:
    store = KeyStore(database, make_lookup(database, KeysSettings(cache_s=cache_s)))
    return Authenticator(store, None, lambda reason: None)


@pytest.mark.parametrize("trouble", ["stops", "hangs"])
async def test_without_the_database_only_who_is_remembered_is_let_in(
    own_postgres: Postgres, database: Database, trouble: str
) -> None:
    known, other = [f"Bearer {(await KeyStore(database).create('acme'))[0]}" for _ in range(2)]
    remembering, forgetful = ingress(database, 60), ingress(database, 0)
    for each in (remembering, forgetful):
        await each.authenticate(known, "r")
    if trouble == "stops":
        await asyncio.to_thread(own_postgres.stop)
    else:
        own_postgres.pause()
    try:
        assert (await remembering.authenticate(known, "r")).context.account_id == "acme"
        with pytest.raises(Unauthenticated):
            await remembering.authenticate(known + "x", "r")
        for each, header in ((remembering, other), (remembering, "Bearer strata_0123456789ab_x"), (forgetful, known)):
            with pytest.raises(DatabaseDown) as caught:
                await each.authenticate(header, "r")
            assert str(own_postgres.port) not in str(caught.value)
    finally:
        if trouble == "stops":
            await asyncio.to_thread(own_postgres.start)
        else:
            own_postgres.resume()
    for each in (remembering, forgetful):
        assert (await each.authenticate(other, "r")).context.account_id == "acme"
    with pytest.raises(Unauthenticated):
        await remembering.authenticate("Bearer strata_0123456789ab_x", "r")
