"""The same chain and reader in this process, without Ray: for notebooks, evaluation and benchmarks (decision 1)."""

import asyncio

from contracts.ports import Embedder, ReadableIndex
from contracts.stages import Observer
from deployments.backends import open_reader
from deployments.service import Service
from deployments.settings import Settings
from models.load import load_embedder, load_pair_scorer
from stages.assembler import Assembler
from stages.chain import Chain, Stages
from stages.embedder import EmbedderStage
from stages.expander import Expander
from stages.planner import Planner
from stages.reader import Reader
from stages.rechecker import Rechecker
from stages.redaction import Redactor
from stages.reranker import Reranker
from stages.seed_search import SeedSearch


class LocalService(Service):
    """A service that holds its index open and its models loaded; made by :func:`open_local`."""

    def __init__(
        self, chain: Chain, reader: Reader, settings: Settings, index: ReadableIndex, embedder: Embedder
    ) -> None:
        super().__init__(chain, reader, settings)
        self.index = index
        self.embedder = embedder

    async def close(self) -> None:
        """Let go of the index."""
        await self.index.close()


async def open_local(
    settings: Settings,
    observer: Observer | None = None,
    *,
    embedder: Embedder | None = None,
    index: ReadableIndex | None = None,
) -> LocalService:
    """Load the models and open the index in this process.

    Args:
        settings: The same as for the graph; what concerns Ray and HTTP is not looked at.
        observer: Told what the chain does.
        embedder: In place of the model of the settings.
        index: In place of the index of the settings; closed with the service.

    Raises:
        ConfigError: A model can't be found or loaded, or the index can't be opened.
    """
    stages = settings.stages
    if embedder is None:
        embedder = await asyncio.to_thread(load_embedder, settings.embedder)
    wants_scorer = stages.reranker.config.kind == "cross_encoder"
    scorer = await asyncio.to_thread(load_pair_scorer, settings.cross_encoder) if wants_scorer else None
    index = index or await open_reader(settings.data_dir, settings.index)
    chain = Chain(
        Stages(
            planner=Planner(stages.planner.config),
            embedder=EmbedderStage(embedder),
            seed_search=SeedSearch(index, stages.seed_search.config, settings.scoring),
            expander=Expander(index, stages.expander.config, settings.scoring),
            rechecker=Rechecker(index, stages.rechecker.config),
            reranker=Reranker(stages.reranker.config, scorer),
            assembler=Assembler(stages.assembler.config),
        ),
        settings.chain,
        observer,
    )
    reader = Reader(index, index, index, stages.reader.config, Redactor(settings.redaction))
    return LocalService(chain, reader, settings, index, embedder)
