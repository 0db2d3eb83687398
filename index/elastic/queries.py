"""The searches sent to Elasticsearch and what their answers say: pure functions, tested without a server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from contracts.filters import Filter
from contracts.ports import Vectors
from index.bm25 import FieldStatistics, Statistics
from index.elastic.config import RecallConfig
from index.elastic.filter_query import query
from index.elastic.kept import FIELDS
from index.rows import unit
from index.text import Analysis

Body = dict[str, Any]
# More kinds of node than any account has.
_MAX_KINDS = 1_000
# A hit is its id alone, from doc values: stored fields would be decompressed for it.
_IDS: Body = {"_source": False, "stored_fields": "_none_", "docvalue_fields": ["key"], "track_total_hits": False}


class Hidden(NamedTuple):
    """Revisions of an account that no search may show.

    Args:
        staged: First and last of commits that are not complete.
        replaced: Those that a later one has replaced.
    """

    staged: tuple[tuple[int, int], ...] = ()
    replaced: frozenset[int] = frozenset()

    def hides(self, revision: int) -> bool:
        """Whether a revision is hidden."""
        return revision in self.replaced or any(first <= revision <= last for first, last in self.staged)


def visible(condition: Filter | Body, hidden: Hidden) -> Body:
    """What satisfies a filter and is not hidden."""
    wanted = condition if isinstance(condition, dict) else query(condition)
    excluded: list[Body] = [{"range": {"revision": {"gte": first, "lte": last}}} for first, last in hidden.staged]
    if hidden.replaced:
        excluded.append({"terms": {"revision": sorted(hidden.replaced)}})
    return {"bool": {"filter": [wanted], "must_not": excluded}} if excluded else wanted


def dense(vector: Vectors, condition: Body, limit: int, config: RecallConfig) -> Body:
    """The ``limit`` nearest records that satisfy a condition, with exact scores (see ``cosine``)."""
    candidates = min(10_000, max(config.min_candidates, round(limit * config.num_candidates)))
    knn = _knn(vector, limit, candidates, condition, config.rescore)
    return _hits(limit, {"knn": knn})


def keyword(terms: Analysis, condition: Body, limit: int, config: RecallConfig) -> Body:
    """The best records by Elasticsearch's own BM25, more than ``limit``: our coverage chooses among them."""
    share = config.bm25.bigram_weight
    should = [
        {"match": {"words": {"query": " ".join(dict.fromkeys(terms.words)), "boost": 1 - share}}},
        {"match": {"bigrams": {"query": " ".join(dict.fromkeys(terms.bigrams)), "boost": share}}},
    ]
    wanted = [part for part, found in zip(should, terms, strict=True) if found]
    matching = {"bool": {"filter": [condition], "should": wanted, "minimum_should_match": 1}}
    return _hits(round(limit * config.keyword_oversampling), {"query": matching})


def exact(vector: Vectors, ids: Sequence[str]) -> Body:
    """Exact scores of the records with these ids: with no more of them than are wanted, no graph is walked."""
    return {"size": len(ids), "knn": _knn(vector, len(ids), len(ids), _with_ids(ids), 1), **_IDS}


def totals(account: Body) -> Body:
    """By kind of node, how many have terms, and how many terms."""
    counts = {field: {"stats": {"field": f"{field}_count"}} for field in Analysis._fields}
    return {"size": 0, "query": account, "aggs": {"kinds": {**_kinds(), "aggs": counts}}, "track_total_hits": False}


def frequencies(account: Body, terms: Analysis) -> Body:
    """By term and kind of node, how many hold the term."""
    named = {f"{field[0]}{term}": {"term": {field: term}} for field, found in _pairs(terms) for term in found}
    filters = {"filters": {"filters": named}, "aggs": {"kinds": _kinds()}}
    return {"size": 0, "query": account, "aggs": {"terms": filters}, "track_total_hits": False}


def by_uris(condition: Body, uris: Sequence[str]) -> Body:
    """The records with these URIs; one that is just being replaced may come in two revisions."""
    wanted = {"bool": {"filter": [condition, {"terms": {"uri": list(uris)}}]}}
    return {"size": 2 * len(uris), "query": wanted, **_IDS}


def records(ids: Sequence[str]) -> Body:
    """What there is to know of the records with these ids, for ``kept``."""
    wanted = {"bool": {"filter": [_with_ids(ids)]}}
    return {"size": len(ids), "query": wanted, "_source": list(FIELDS), "track_total_hits": False}


class Scored(NamedTuple):
    """A record as a search returns it."""

    id: str
    score: float


def scored(response: Mapping[str, Any]) -> list[Scored]:
    """The records that a search found; without a score of meaning where it asked for none."""
    return [Scored(hit["fields"]["key"][0], hit["_score"]) for hit in response.get("hits", {}).get("hits", ())]


def cosine(score: float) -> float:
    """The cosine, negative clipped to 0, behind a ``max_inner_product`` score, which is cos + 1 from 0 up."""
    return min(1.0, max(0.0, score - 1))


def statistics(
    kind: str, terms: Analysis, counted: Mapping[str, Any] | None, held: Mapping[str, Any] | None
) -> Statistics:
    """The statistics of a kind of node.

    Args:
        kind: The kind.
        terms: The analysed query.
        counted: The answer to ``totals``; ``None`` when the query has no terms.
        held: The answer to ``frequencies``; likewise.
    """
    buckets = {bucket["key"]: bucket for bucket in counted["aggregations"]["kinds"]["buckets"]} if counted else {}
    by_term = held["aggregations"]["terms"]["buckets"] if held else {}
    fields = []
    for field, wanted in _pairs(terms):
        total = buckets.get(kind, {}).get(field, {"count": 0, "sum": 0})
        frequency = {term: _count(by_term[f"{field[0]}{term}"], kind) for term in wanted}
        fields.append(FieldStatistics(total["count"], round(total["sum"]), frequency))
    return Statistics(*fields)


def fault(response: Mapping[str, Any]) -> str:
    """The type of the error that a search ended with; empty when it did not."""
    error = response.get("error")
    if not error:
        return ""
    return str(error.get("type", "error")) if isinstance(error, Mapping) else "error"


def incomplete(response: Mapping[str, Any]) -> str:
    """Why an answer covers a part of the index only; empty when it covers all."""
    shards = response.get("_shards", {})
    if shards.get("failed"):
        return f"{shards['failed']} of {shards['total']} shards failed"
    return "the time ran out on a shard" if response.get("timed_out") else ""


def _hits(size: int, search: Body) -> Body:
    return {"size": size, **search, **_IDS}


def _with_ids(ids: Sequence[str]) -> Body:
    return {"ids": {"values": list(ids)}}


def _knn(vector: Vectors, k: int, candidates: int, condition: Body, rescore: float) -> Body:
    return {
        "field": "vector",
        "query_vector": unit(vector),
        "k": k,
        "num_candidates": max(k, candidates),
        "filter": condition,
        "rescore_vector": {"oversample": rescore},
    }


def _kinds() -> Body:
    return {"terms": {"field": "kind", "size": _MAX_KINDS, "missing": ""}}


def _pairs(terms: Analysis) -> Iterable[tuple[str, list[str]]]:
    return ((field, list(dict.fromkeys(found))) for field, found in zip(Analysis._fields, terms, strict=True))


def _count(bucket: Mapping[str, Any], kind: str) -> int:
    return next((int(each["doc_count"]) for each in bucket["kinds"]["buckets"] if each["key"] == kind), 0)
