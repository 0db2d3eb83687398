"""Bring the knowledge base of the settings to their model (K4); ``corpora.knowledge_base.reembed`` says how."""

import asyncio
from collections.abc import Callable

from contracts.ports import Embedder
from corpora.knowledge_base.reembed import Reembedded, mark_all, rewrite
from database.engine import Database
from deployments.backends import open_database, open_writer
from deployments.knowledge_base.opening import location
from deployments.settings import Settings
from models.load import load_embedder


async def reembed(settings: Settings, told: Callable[[int], None] = lambda _: None) -> Reembedded:
    """Embed anew what is not of the settings' model yet; run again, it goes on where it was stopped.

    Args:
        settings: With the new model.
        told: Told how many entities, or nodes on Elasticsearch, are done.

    Raises:
        ConfigError: The model can't be loaded, or another process writes to the index or changes its versions.
        StageFailed: The cluster or the model failed.
        DatabaseDown: The database can't be asked.
    """
    embedder = await asyncio.to_thread(load_embedder, settings.knowledge_base.embedder)
    database = await open_database(settings)
    try:
        if settings.index.backend == "elasticsearch":
            return await _versions(settings, database, embedder, told)
        index = await open_writer(*location(settings))
        try:
            done = 0

            def count(entities: int) -> None:
                nonlocal done
                done += entities
                told(done)

            return await rewrite(database, index, embedder, settings.knowledge_base, count)
        finally:
            await index.close()
    finally:
        await database.close()


async def _versions(
    settings: Settings, database: Database, embedder: Embedder, told: Callable[[int], None]
) -> Reembedded:
    from index.elastic.index import ElasticIndex  # noqa: PLC0415 - only where it is spoken
    from index.elastic.reindex import Reindex  # noqa: PLC0415

    index = await open_writer(*location(settings))
    assert isinstance(index, ElasticIndex)  # noqa: S101 - as the settings say
    try:
        report = Reembedded(embedder.model)
        # A run that was stopped between the swap and the note is gone on with by the note alone.
        if await index.model() not in {None, embedder.model}:
            job = Reindex(index.client, index.versions, embedder, settings.index.elastic.write)
            done = await job.run(lambda phase, count, _: told(count) if phase == "write" else None)
            report.entities, report.removed = done.nodes, done.removed
        report.chunks = await mark_all(database, embedder.model)
        return report
    finally:
        await index.close()
