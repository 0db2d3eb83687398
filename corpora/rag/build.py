"""The core put together over a chain and a reader, wherever those run."""

from collections.abc import Mapping
from hashlib import blake2b

from contracts.stages import ReadRequest, ReadResult, Stage
from corpora.rag.cache import RankingCache
from corpora.rag.calibration import Scale
from corpora.rag.config import CorporaConfig
from corpora.rag.core import Core
from corpora.rag.graph_retriever import GraphRetriever
from corpora.rag.keyword_retriever import KeywordRetriever
from corpora.rag.paths import Paths
from corpora.rag.ports import CorpusAdapter, CorpusObserver, Switch
from corpora.rag.texts import Texts
from stages.chain import Chain
from stages.redaction import Redactor
from stages.scoring import ScoringConfig


def core_over(
    chain: Chain,
    reader: Stage[ReadRequest, ReadResult],
    corpora: Mapping[str, CorpusAdapter],
    *,
    config: CorporaConfig,
    scoring: ScoringConfig,
    model: str,
    switch: Switch,
    redactor: Redactor,
    observer: CorpusObserver | None = None,
) -> Core:
    """A core on stages that exist already.

    Args:
        chain: Searches; the keyword path takes two of its stages.
        reader: Reads, behind its circuit breaker.
        corpora: Adapters by name.
        config: Limits, curves, and how much is remembered.
        scoring: What the chain scores by.
        model: Name of the embedding model, as its ``ModelRef`` says.
        switch: Which path answers whom.
        redactor: Masks secrets in titles.
        observer: Told of each retrieval.
    """
    retrieve, curves = config.retrieve, config.calibrations
    scale = Scale(model, curves, scoring.weights)
    settings = f"{model} {retrieve.model_dump_json()} {scoring.model_dump_json()} {sorted(curves.items())}"
    paths = Paths(
        {
            "rag": GraphRetriever(chain, scale, retrieve.rerank_timeout_ms),
            "keyword": KeywordRetriever(chain, scale),
        },
        Texts(reader),
        RankingCache(config.cache),
        retrieve.reader_reserve_ms / 1000,
        blake2b(settings.encode(), digest_size=16).hexdigest(),
    )
    return Core(corpora, paths, retrieve, switch, redactor, observer)
