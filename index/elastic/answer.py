"""One query on its way through Elasticsearch: the searches it needs, and the answer made of what they return."""

from collections.abc import Hashable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from contracts.filters import Eq, account_of
from contracts.ports import Recall, Recalled, RecallQuery
from contracts.records import ModelRef
from index.bm25 import Statistics
from index.candidates import Candidates, Key, refuse_other_model, require_some
from index.elastic import queries
from index.elastic.config import RecallConfig
from index.elastic.filter_query import query as filter_query
from index.elastic.kept import Kept
from index.elastic.queries import Body, Hidden, Scored
from index.text import Analysis, analyze

Response = Mapping[str, Any]
# What tells the searches of one request apart; the same for searches that queries share.
SearchKey = Hashable


class Asked(NamedTuple):
    """A search, and the account whose records it looks at."""

    account_id: str
    body: Body


class Plan:
    """A query, read and checked before anything is searched.

    Raises:
        InvalidFilter: Its condition names no account, or a field the index lacks.
    """

    def __init__(self, query: RecallQuery) -> None:
        self.query = query
        self.account_id = account_of(query.condition)
        self.condition = filter_query(query.condition)
        self.terms = analyze(query.text)


class Answer:
    """What is known of a query's answer, after each round trip.

    Args:
        plan: The query.
        held: The model of the index.
        hidden: What the searches leave out.
        config: How thoroughly is searched.
    """

    def __init__(self, plan: Plan, held: ModelRef, hidden: Hidden, config: RecallConfig) -> None:
        self._plan = plan
        self._query, self._failed = refuse_other_model(plan.query, held)
        self._hidden = hidden
        self._config = config
        self._partial: dict[Recall, str] = {}
        self._candidates = Candidates(plan.query.limit)
        self._ids: dict[Key, str] = {}
        self._cosines: dict[Key, float] = {}
        self.revisions: set[int] = set()

    def searches(self) -> dict[SearchKey, Asked]:
        """The first round: the recalls, and the counts that coverage needs."""
        plan, query, config = self._plan, self._query, self._config
        condition = queries.visible(plan.condition, self._hidden)
        everything = queries.visible(Eq("account_id", plan.account_id), self._hidden)
        bodies: dict[SearchKey, Body] = {}
        if query.vector is not None:
            bodies[self._own("dense")] = queries.dense(query.vector, condition, query.limit, config)
        if self._has_terms:
            bodies[self._own("keyword")] = queries.keyword(plan.terms, condition, query.limit, config)
            bodies[self._totals] = queries.totals(everything)
            bodies[self._frequencies] = queries.frequencies(everything, plan.terms)
        return {key: Asked(plan.account_id, body) for key, body in bodies.items()}

    def found(self, responses: Mapping[SearchKey, Response]) -> set[str]:
        """The ids that the recalls returned."""
        recalls = (responses.get(self._own(recall), {}) for recall in ("dense", "keyword"))
        return {record.id for response in recalls for record in queries.scored(response)}

    def take(self, responses: Mapping[SearchKey, Response], nodes: Mapping[str, Kept]) -> None:
        """Note what the first round returned; scoring takes some 2 µs a candidate.

        Args:
            responses: Of the searches.
            nodes: What lies behind the ids that were found.

        Raises:
            RecallFailed: Nothing was found out.
        """
        counted = {key: responses[key] for key in (self._totals, self._frequencies) if key in responses}
        recalls: dict[Recall, Response] = {}
        for recall in ("dense", "keyword"):
            if (response := responses.get(self._own(recall))) is None:
                continue
            needed = [response, *counted.values()] if recall == "keyword" else [response]
            if fault := next(filter(None, map(queries.fault, needed)), ""):
                self._failed[recall] = fault
                continue
            recalls[recall] = response
            if why := next(filter(None, map(queries.incomplete, needed)), ""):
                self._partial[recall] = why
        require_some(self._failed, recalls)
        self._collect({recall: queries.scored(response) for recall, response in recalls.items()}, nodes)
        terms = self._plan.terms if "keyword" in recalls else Analysis([], [])

        def statistics(_: str, kind: str) -> Statistics:
            return queries.statistics(kind, terms, counted.get(self._totals), counted.get(self._frequencies))

        self._candidates.score(terms, statistics, self._config.bm25)

    def exact_searches(self) -> dict[SearchKey, Asked]:
        """The second round: the cosines of what dense recall did not find."""
        missing = [self._ids[key] for key in self._candidates.keyword_only()]
        if not missing or self._query.vector is None or "dense" in self._failed:
            return {}
        return {self._own("exact"): Asked(self._plan.account_id, queries.exact(self._query.vector, missing))}

    def recalled(self, responses: Mapping[SearchKey, Response]) -> Recalled:
        """The answer, after the second round."""
        response = responses.get(self._own("exact"))
        if response is not None:
            if why := queries.fault(response) or queries.incomplete(response):
                self._partial["dense"] = f"not all vectors could be compared: {why}"
            keys = {self._ids[key]: key for key in self._candidates.keyword_only()}
            for record in queries.scored(response):
                self._cosines[keys[record.id]] = queries.cosine(record.score)
        return self._candidates.recalled(self._cosines, self._failed, self._partial)

    @property
    def _has_terms(self) -> bool:
        return bool(self._plan.terms.words or self._plan.terms.bigrams)

    @property
    def _totals(self) -> SearchKey:
        return "totals", self._plan.account_id

    @property
    def _frequencies(self) -> SearchKey:
        return "frequencies", self._plan.account_id, *map(tuple, self._plan.terms)

    def _own(self, name: str) -> SearchKey:
        return id(self), name

    def _collect(self, found: Mapping[Recall, list[Scored]], nodes: Mapping[str, Kept]) -> None:
        """Take each node in its newest revision: while one moves to another document, both are there."""
        newest: dict[str, int] = {}
        for record in chain.from_iterable(found.values()):
            node = nodes[record.id]
            newest[node.meta.uri] = max(node.revision, newest.get(node.meta.uri, 0))
        self.revisions = set(newest.values())
        for recall, records in found.items():
            pairs = ((record, nodes[record.id]) for record in records)
            shown = [(record, node) for record, node in pairs if node.revision == newest[node.meta.uri]]
            keys = [(self._plan.account_id, node.meta.kind, node.meta.uri) for _, node in shown]
            self._ids.update(zip(keys, (record.id for record, _ in shown), strict=True))
            self._candidates.add(recall, keys, (node.shown for _, node in shown), (node.texts for _, node in shown))
            if recall == "dense":
                cosines = (queries.cosine(record.score) for record, _ in shown)
                self._cosines.update(zip(keys, cosines, strict=True))
