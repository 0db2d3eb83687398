"""The API keys opened from the settings: for an ingress, and for a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from contracts.context import RequestContext
from database.engine import Database
from deployments.backends import open_database
from deployments.identity.keys import KeyStore
from deployments.identity.lookup import make_lookup
from deployments.identity.old_keys import take_over
from deployments.settings import Settings


async def open_keys(settings: Settings, database: Database) -> KeyStore:
    """The keys for an ingress, which checks requests against them.

    Args:
        settings: All of them.
        database: Where the keys are; stays the caller's to close.

    Raises:
        ConfigError: There is a file with keys of an older release, and it can't be read.
        DatabaseDown: There is such a file, and its keys can't be stored now.
    """
    keys = KeyStore(database, make_lookup(database, settings.identity.keys))
    await take_over(settings.old_keys_path, keys)
    return keys


@asynccontextmanager
async def local_keys(settings: Settings) -> AsyncIterator[KeyStore]:
    """The keys for a command, open until the end.

    Raises:
        ConfigError: As :func:`open_keys`; or the database can't be opened.
        DatabaseDown: As :func:`open_keys`.
    """
    database = await open_database(settings)
    try:
        keys = KeyStore(database)
        await take_over(settings.old_keys_path, keys)
        yield keys
    finally:
        await database.close()


async def context_of(settings: Settings, token: str, request_id: str) -> RequestContext:
    """The identity that an API key gives.

    Raises:
        Unauthenticated: It is none, or does not hold any more.
        ConfigError: As :func:`local_keys`.
        DatabaseDown: It can't be looked up.
    """
    async with local_keys(settings) as keys:
        return (await keys.authenticate(token)).context(request_id)
