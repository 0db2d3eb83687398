"""From settings to an open index."""

from pathlib import Path

from contracts.ports import ReadableIndex
from deployments.settings import IndexSettings


async def open_index(folder: Path, settings: IndexSettings) -> ReadableIndex:
    """Open the index of a data folder for reading.

    Args:
        folder: ``Settings.index_dir``; made when it is missing.
        settings: Which backend, and its own settings.

    Raises:
        ConfigError: The folder is of another version of this product.
    """
    # Seconds and 100 MB that processes without an index shall not pay; and Ray should not fork with LanceDB's threads.
    from index.embedded.index import EmbeddedIndex  # noqa: PLC0415

    return await EmbeddedIndex.open(folder, settings.embedded)
