"""From settings to an open index and an open database."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.ports import ReadableIndex, WritableIndex
from database.target import Target
from deployments.environment import Environment
from deployments.settings import INDEX_FOLDER, IndexSettings, Settings
from index.elastic.config import ElasticConfig

if TYPE_CHECKING:
    from database.engine import Database
    from index.elastic.client import Secrets

# Of the data folder: the SQL database, where nothing else is set.
DATABASE_FILE = "strata.db"


async def open_reader(data_dir: Path, settings: IndexSettings) -> ReadableIndex:
    """Open the index for reading; what is not there yet is empty.

    Args:
        data_dir: ``Settings.data_dir``.
        settings: Which backend, and its own settings.

    Raises:
        ConfigError: The folder is of another version of this product; or the Elasticsearch cluster is not known, or
            its settings do not fit the secrets in the environment.
    """
    return await _open(data_dir, settings, write=False)


async def open_writer(data_dir: Path, settings: IndexSettings) -> WritableIndex:
    """Open the index for reading and writing.

    Args:
        data_dir: ``Settings.data_dir``.
        settings: Which backend, and its own settings.

    Raises:
        ConfigError: As :func:`open_reader`; or another process writes to the embedded index.
    """
    return await _open(data_dir, settings, write=True)


async def cluster_health(data_dir: Path, settings: ElasticConfig) -> str:
    """How the Elasticsearch cluster is, in a few words.

    Raises:
        ConfigError: It is not known, or can't be asked; with what to do about it.
    """
    from index.elastic.client import connect, health  # noqa: PLC0415

    async with connect(settings.connection, _secrets(), _hosts(data_dir, settings)) as client:
        return await health(client)


def database_target(settings: Settings) -> Target:
    """The SQL database: that of STRATA_DATABASE_URL, of the settings, or a file in the data folder.

    Raises:
        ConfigError: The URL is of no known form, or the secret's file can't be read.
    """
    if url := Environment.read().secret("database_url") or settings.database.url:
        return Target.parse(url)
    return Target.file(settings.data_dir / DATABASE_FILE)


async def open_database(settings: Settings) -> "Database":
    """Open the SQL database; one that does not answer now is asked again at its first use.

    Raises:
        ConfigError: As :func:`database_target`; or its tables are of another version.
    """
    from database.engine import Database  # noqa: PLC0415

    return await Database.open(database_target(settings), settings.database)


async def _open(data_dir: Path, settings: IndexSettings, *, write: bool) -> WritableIndex:
    # Seconds and 100 MB that processes without an index shall not pay; and Ray should not fork with LanceDB's threads.
    if settings.backend == "elasticsearch":
        from index.elastic.index import ElasticIndex  # noqa: PLC0415

        return await ElasticIndex.open(settings.elastic, _hosts(data_dir, settings.elastic), _secrets(), write=write)
    from index.embedded.index import EmbeddedIndex  # noqa: PLC0415

    return await EmbeddedIndex.open(data_dir / INDEX_FOLDER, settings.embedded, write=write)


def _secrets() -> "Secrets":
    """Those in the environment of this process."""
    from index.elastic.client import Secrets  # noqa: PLC0415

    environment = Environment.read()
    return Secrets(environment.secret("elastic_api_key"), environment.secret("elastic_password"))


def _hosts(data_dir: Path, settings: ElasticConfig) -> Sequence[str]:
    """The nodes to ask: those of the settings, else of the development cluster of the data folder."""
    if settings.connection.hosts or settings.connection.cloud_id:
        return settings.connection.hosts
    from index.elastic.devnode.state import discover  # noqa: PLC0415

    return discover(data_dir)
