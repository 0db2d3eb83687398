"""What runs in the replicas: a thin deployment class a stage around the pure stage of the same name.

A constructor only keeps what it is given; ``open`` builds the stage and warms it up, and Serve sends a replica no call
before that is done: its model has answered once, its index is open.
"""

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StrataError
from contracts.records import ModelRef
from contracts.stages import (
    AssembleRequest,
    Assembly,
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    Plan,
    PlanRequest,
    QueryVectors,
    ReadRequest,
    ReadResult,
    RecheckRequest,
    RecheckResult,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
    Stage,
)
from deployments.backends import open_index
from deployments.batching import BatchedEmbedder, SharedScorer
from deployments.bounded import Bounded
from deployments.settings import BatchSettings, IndexSettings
from deployments.transport import encode_error, encode_result
from index.embedded import EmbeddedIndex
from models.config import CrossEncoderConfig, EmbedderModelConfig
from models.load import load_embedder, load_pair_scorer
from stages.assembler import Assembler, AssemblerConfig
from stages.embedder import EmbedderStage
from stages.expander import Expander, ExpanderConfig
from stages.planner import Planner, PlannerConfig
from stages.reader import Reader, ReaderConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.reranker import Reranker, RerankerConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig

In = TypeVar("In")
Out = TypeVar("Out")

# A batch that takes longer than this hangs: the replica is replaced.
_HANGING_S = 60.0


class StageReplica(ABC, Generic[In, Out]):
    """Server side of a stage call.

    Args:
        args: For ``open`` of the subclass.
    """

    name: ClassVar[str]
    request_type: ClassVar[Any]

    async def __init__(self, *args: Any) -> None:  # type: ignore[misc]  # Serve awaits it
        self._decoder = msgspec.msgpack.Decoder(tuple[RequestContext, Deadline, self.request_type])  # type: ignore[name-defined]
        self._stage: Stage[In, Out] = Bounded(self.name, await self.open(*args))

    @abstractmethod
    async def open(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage and warm it up."""

    async def __call__(self, payload: bytes) -> bytes:
        """Answer one call of the transport."""
        try:
            return encode_result(await self._stage(*self._decoder.decode(payload)))
        except StrataError as error:
            return encode_error(error)

    async def describe(self) -> ModelRef | None:
        """Asked by ``/readyz``: a replica answers once it is up, and says which model its vectors are of, if any."""
        return None

    async def check_health(self) -> None:
        """Serve replaces a replica that raises here or whose event loop does not get to it."""


class PlannerReplica(StageReplica[PlanRequest, Plan]):
    """The planner."""

    name = "planner"
    request_type = PlanRequest

    async def open(self, config: PlannerConfig) -> Planner:
        """Nothing to warm up."""
        return Planner(config)


class EmbedderReplica(StageReplica[EmbedRequest, QueryVectors]):
    """The embedder, batching over requests."""

    name = "embedder"
    request_type = EmbedRequest

    async def open(self, model: EmbedderModelConfig) -> BatchedEmbedder:
        """Load the model; loading it embeds once."""
        self._embedder = await asyncio.to_thread(load_embedder, model)
        self._batched = BatchedEmbedder(EmbedderStage(self._embedder), limit=1)
        return self._batched

    def reconfigure(self, tuning: dict[str, Any]) -> None:
        """Take a batch limit: at the start, and a new one later without a restart."""
        self._batched.set_limit(BatchSettings.model_validate(tuning).limit)

    async def describe(self) -> ModelRef | None:
        """The model of the query vectors."""
        return self._embedder.model

    async def check_health(self) -> None:
        """Unhealthy when a batch hangs."""
        _check_batch(self._batched.busy_seconds())


class IndexReplica(StageReplica[In, Out]):
    """A stage on the index."""

    _index: EmbeddedIndex

    async def open(self, folder: Path, index: IndexSettings, *args: Any) -> Stage[In, Out]:
        """Open the index, then build the stage on it."""
        self._index = await open_index(folder, index)
        await self._index.model()
        return self.build(*args)

    @abstractmethod
    def build(self, *args: Any, **kwargs: Any) -> Stage[In, Out]:
        """Build the stage on the open index."""


class SeedSearchReplica(IndexReplica[SeedRequest, SeedResult]):
    """The seed search."""

    name = "seed_search"
    request_type = SeedRequest

    def build(self, config: SeedSearchConfig, scoring: ScoringConfig) -> SeedSearch:
        """The stage."""
        return SeedSearch(self._index, config, scoring)

    async def describe(self) -> ModelRef | None:
        """The model of the index's vectors; ``None`` while it is empty."""
        return await self._index.model()


class ExpanderReplica(IndexReplica[ExpandRequest, ExpandResult]):
    """The expander."""

    name = "expander"
    request_type = ExpandRequest

    def build(self, config: ExpanderConfig, scoring: ScoringConfig) -> Expander:
        """The stage."""
        return Expander(self._index, config, scoring)


class RecheckerReplica(IndexReplica[RecheckRequest, RecheckResult]):
    """The rechecker."""

    name = "rechecker"
    request_type = RecheckRequest

    def build(self, config: RecheckerConfig) -> Rechecker:
        """The stage."""
        return Rechecker(self._index, config)


class RerankerReplica(StageReplica[RerankRequest, RerankResult]):
    """The reranker: several requests side by side, their pairs scored together."""

    name = "reranker"
    request_type = RerankRequest

    async def open(
        self, config: RerankerConfig, model: CrossEncoderConfig, side_by_side: int
    ) -> Stage[RerankRequest, RerankResult]:
        """Load the model, where one is wanted; loading it scores once."""
        self._scorer: SharedScorer | None = None
        if config.kind == "none":
            return Reranker(config)
        self._scorer = SharedScorer(await asyncio.to_thread(load_pair_scorer, model), 1, _HANGING_S)
        return Lanes([Reranker(config, self._scorer) for _ in range(side_by_side)])

    def reconfigure(self, tuning: dict[str, Any]) -> None:
        """Take a batch limit: at the start, and a new one later without a restart."""
        if self._scorer:
            self._scorer.batcher.limit = BatchSettings.model_validate(tuning).limit

    async def check_health(self) -> None:
        """Unhealthy when a batch hangs."""
        if self._scorer:
            _check_batch(self._scorer.batcher.busy_seconds())


class AssemblerReplica(StageReplica[AssembleRequest, Assembly]):
    """The assembler."""

    name = "assembler"
    request_type = AssembleRequest

    async def open(self, config: AssemblerConfig) -> Assembler:
        """Nothing to warm up."""
        return Assembler(config)


class ReaderReplica(IndexReplica[ReadRequest, ReadResult]):
    """The reader."""

    name = "reader"
    request_type = ReadRequest

    def build(self, config: ReaderConfig) -> Reader:
        """The stage."""
        return Reader(self._index, self._index, self._index, config)


class Lanes(Generic[In, Out]):
    """Equal stages that work side by side where one alone would take requests one by one.

    Args:
        lanes: The stages.
    """

    def __init__(self, lanes: list[Stage[In, Out]]) -> None:
        self._lanes = lanes
        self._ongoing = [0] * len(lanes)

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In, /) -> Out:
        """Call the stage with the least to do."""
        lane = self._ongoing.index(min(self._ongoing))
        self._ongoing[lane] += 1
        try:
            return await self._lanes[lane](ctx, deadline, request)
        finally:
            self._ongoing[lane] -= 1


def _check_batch(seconds: float) -> None:
    if seconds > _HANGING_S:
        raise RuntimeError(f"A batch has taken {seconds:.0f} s.")
