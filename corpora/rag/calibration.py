"""Relevance on one scale for all models: what a threshold is held against.

Scores of two models can't be compared: one puts unrelated texts at a cosine of 0.1, another at 0.6. So each model has a
calibration, fitted by ``strata calibrate`` on judged queries: a logistic curve, both classes weighing the same,

    relevance = 1 / (1 + exp(-slope * (evidence - midpoint)))

At 0.5 a score is as likely among relevant hits as among irrelevant ones, and at r it is r / (1 - r) times as likely:
0.55 says 1.22 to 1 for relevant, 0.75 says 3 to 1.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from contracts.hits import RetrievedBlock, ScoreBreakdown
from contracts.trace import Degradation
from corpora.rag.types import Ranked, Ranking
from stages.scoring import Weights

logger = logging.getLogger(__name__)

# What hits found by words alone are measured by, whatever the model.
KEYWORD = "keyword"
# Beyond it a float is 0 or 1 all the same.
_STEEPEST = 500.0


class Calibration(BaseModel):
    """The curve of a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slope: float = Field(gt=0, le=1000, description="How fast scores turn from irrelevant to relevant.")
    midpoint: float = Field(ge=-1, le=2, description="The score that is as likely among relevant as irrelevant hits.")

    def relevance(self, evidence: float) -> float:
        """Relevance in 0..1, never falling as the evidence rises."""
        power = self.slope * (evidence - self.midpoint)
        return 1 / (1 + math.exp(-max(-_STEEPEST, min(_STEEPEST, power))))


Calibrations = dict[str, Calibration]

# Of the shipped models, fitted on the sets that docs/corpora.md names, and of an unknown one: a guess between them.
DEFAULTS: Mapping[str, Calibration] = {
    "all-MiniLM-L6-v2": Calibration(slope=15.75, midpoint=0.332),
    "bge-small-zh-v1.5": Calibration(slope=16.99, midpoint=0.427),
    "deterministic-v1": Calibration(slope=46.88, midpoint=0.136),
    KEYWORD: Calibration(slope=14.78, midpoint=0.272),
}
UNKNOWN = Calibration(slope=16.0, midpoint=0.38)


def evidence(scores: ScoreBreakdown, weights: Weights, *, expanded: bool = True) -> float:
    """What a hit's relevance is made from, 0..1: its own score and its parents' as in C15, and nothing else of it.

    Args:
        scores: Its parts.
        weights: Those of C15; category and target do not count, being no evidence about the text.
        expanded: Whether its parents were looked at; if not, they are not held against it.
    """
    total = weights.vector + weights.hierarchy
    if not expanded or not total:
        return scores.relevance
    return (weights.vector * scores.relevance + weights.hierarchy * scores.hierarchy) / total


class Scale:
    """From hits of a search to a ranking on the scale of relevance.

    Args:
        model: Name of the embedding model.
        calibrations: Curves by model; those of the shipped models need not be named.
        weights: Those of C15.
    """

    def __init__(self, model: str, calibrations: Mapping[str, Calibration], weights: Weights) -> None:
        known = {**DEFAULTS, **calibrations}
        if model not in known:
            logger.warning(
                "corpora.calibrations has no curve for the model %s: thresholds are rough. Fit one: strata calibrate",
                model,
            )
        self._curve = known.get(model, UNKNOWN)
        self._keyword = known[KEYWORD]
        self._weights = weights

    def relevance(self, scores: ScoreBreakdown, *, expanded: bool = True) -> float:
        """Relevance of one hit, 0..1."""
        # ``stages.scoring.relevance`` leaves lexical coverage as it is where there was no vector to go by.
        if scores.vector == 0 and scores.relevance == scores.keyword:
            return self._keyword.relevance(scores.keyword)
        return self._curve.relevance(evidence(scores, self._weights, expanded=expanded))

    def ranking(
        self, blocks: Iterable[RetrievedBlock], threshold: float, degraded: Sequence[Degradation] = ()
    ) -> Ranking:
        """The hits whose relevance reaches a threshold.

        Args:
            blocks: Of a search, best first. Those with an overview stand above the chunks that are looked for, as their
                parents, and are left out.
            threshold: 0..1.
            degraded: What the search lacked.

        Returns:
            Hits as the reranker ordered them, where it did; else by relevance.
        """
        expanded = all(part.stage != "expander" for part in degraded)
        chunks = [block for block in blocks if block.scores and block.has_content and not block.has_overview]
        reranked = any(block.scores.rerank is not None for block in chunks if block.scores)
        ranked = []
        for block in chunks:
            scores = block.scores or ScoreBreakdown()
            relevance = self.relevance(scores, expanded=expanded)
            ranked.append(Ranked(block.uri, block.score if reranked else relevance, relevance, scores))
        kept = [hit for hit in ranked if hit.relevance >= threshold]
        kept.sort(key=lambda hit: -hit.score)
        return Ranking(tuple(kept), len(ranked) - len(kept), tuple(degraded))
