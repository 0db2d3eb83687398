"""From settings to an open index."""

from pathlib import Path

from deployments.settings import IndexSettings
from index.embedded import EmbeddedIndex


async def open_index(folder: Path, settings: IndexSettings) -> EmbeddedIndex:
    """Open the index of a data folder.

    Args:
        folder: ``Settings.index_dir``; made when it is missing.
        settings: Which backend, and its own settings.
    """
    return await EmbeddedIndex.open(folder, settings.embedded)
