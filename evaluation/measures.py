"""nDCG@10 and recall@10, computed by ir-measures (trec_eval underneath)."""

from collections.abc import Mapping, Sequence

import msgspec

from contracts.errors import ConfigError

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

    Raises:
        ConfigError: The package ``ir-measures`` is not installed.
    """
    try:
        from ir_measures import R, calc_aggregate, nDCG  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "ir-measures is not installed.", field="ir_measures", remedy="pip install 'strata[eval]'"
        ) from None
    # Scores by rank, so that the order given is the order measured: trec_eval would break ties by document id.
    run = {query: {doc: float(-rank) for rank, doc in enumerate(docs)} for query, docs in rankings.items()}
    found = calc_aggregate([nDCG @ DEPTH, R @ DEPTH], {query: dict(docs) for query, docs in qrels.items()}, run)
    return Quality(found[nDCG @ DEPTH], found[R @ DEPTH])
