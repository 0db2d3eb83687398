"""nDCG@10 and recall@10, computed by ir-measures (trec_eval underneath), an extra of this package."""

from collections.abc import Mapping, Sequence

import msgspec

from contracts.errors import ConfigError

try:
    from ir_measures import R, calc_aggregate, nDCG
except ImportError:
    # At import, so that nobody ingests a collection for figures that can't be had.
    raise ConfigError(
        "ir-measures is not installed.", field="ir_measures", remedy="Install the extra eval: make setup-all"
    ) from None

DEPTH = 10


class Quality(msgspec.Struct, frozen=True):
    """Means over all judged queries, each in 0..1; a query without an answer counts as 0."""

    ndcg: float
    recall: float


def measure(qrels: Mapping[str, Mapping[str, int]], rankings: Mapping[str, Sequence[str]]) -> Quality:
    """nDCG@10 and recall@10 of rankings.

    Args:
        qrels: Relevance by document id by query id.
        rankings: Document ids by query id, best first, each once.
    """
    # Scores by rank, so that the order given is the order measured: trec_eval would break ties by document id.
    run = {query: {doc: float(-rank) for rank, doc in enumerate(docs)} for query, docs in rankings.items()}
    found = calc_aggregate([nDCG @ DEPTH, R @ DEPTH], {query: dict(docs) for query, docs in qrels.items()}, run)
    return Quality(found[nDCG @ DEPTH], found[R @ DEPTH])
