"""``strata calibrate``: fits the curve from a model's scores to relevance, on judged queries.

The candidates of each query, as the seed search and the expander find them, are relevant or not by the set's
judgements: as many of them as a retrieval holds against its threshold. The curve of ``corpora.rag.calibration`` is the
logistic regression of that on their evidence, with both classes of a set and all sets weighing the same.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.errors import InvalidInput
from contracts.hits import NodeHit
from contracts.requests import MAX_TOP_K
from contracts.stages import EmbedRequest, ExpandRequest, SeedRequest
from corpora.rag.calibration import Calibration, evidence
from evaluation.ablation import Progress, Setup, patient, silent
from evaluation.datasets import Dataset
from stages.scoring import Weights

Numbers = NDArray[np.float64]

# Documents a query, as ``corpora.retrieve.candidates`` has hits.
CANDIDATES = MAX_TOP_K

# Keeps the curve finite where the classes lie apart, and is of no weight where they overlap.
_RIDGE = 1e-5
_MOST_STEPS, _SETTLED = 200, 1e-9


class Judged(msgspec.Struct, frozen=True):
    """The evidence of the candidates of a set's queries, by what they were judged."""

    dataset: str
    relevant: list[float]
    irrelevant: list[float]


class Kept(msgspec.Struct, frozen=True):
    """What a threshold does to the hits of a set.

    Args:
        dataset: The set.
        relevant: Relevant hits.
        irrelevant: Irrelevant hits.
        relevant_kept: Share of the relevant hits that reach the threshold, 0..1.
        irrelevant_kept: The same of the irrelevant ones.
    """

    dataset: str
    relevant: int
    irrelevant: int
    relevant_kept: float
    irrelevant_kept: float


class CalibrationReport(msgspec.Struct, frozen=True):
    """A fitted curve.

    Args:
        model: Name of the embedding model, or ``keyword``.
        slope: Of the curve.
        midpoint: Of the curve.
        threshold: What ``sets`` are told for.
        sets: What the threshold keeps and drops of each set.
    """

    model: str
    slope: float
    midpoint: float
    threshold: float
    sets: list[Kept]


async def judge(
    dataset: Dataset, setup: Setup, weights: Weights, progress: Progress = silent, *, keyword: bool = False
) -> Judged:
    """Ask all queries of a collection, and look at the candidates of each.

    Args:
        dataset: The collection.
        setup: The stages, and where its documents are.
        weights: Those of C15.
        progress: Told how many queries are done.
        keyword: Whether to search without vectors.
    """
    found = Judged(dataset.name, [], [])
    for start in range(0, len(dataset.questions), setup.batch):
        questions = dataset.questions[start : start + setup.batch]
        queries = tuple(map(setup.query, questions))
        texts = EmbedRequest(tuple(query.text for query in queries))
        vectors = None if keyword else await setup.embedder(setup.ctx, patient(), texts)
        seeds = await setup.seed_search(setup.ctx, patient(), SeedRequest(queries, vectors, None, setup.limit))
        hits = seeds.hits
        if not keyword:
            expanded = await setup.expander(setup.ctx, patient(), ExpandRequest(queries, vectors, None, hits))
            hits = expanded.hits
        for question, own in zip(questions, hits, strict=True):
            for document, hit in _best(setup, own):
                score = hit.scores.keyword if keyword else evidence(hit.scores, weights)
                right = dataset.qrels[question.id].get(document, 0) > 0
                (found.relevant if right else found.irrelevant).append(score)
        progress("search", start + len(questions), len(dataset.questions))
    return found


def report(model: str, judged: Sequence[Judged], threshold: float) -> CalibrationReport:
    """Fit a curve, and tell what a threshold on it does.

    Args:
        model: Name of the embedding model, or ``keyword``.
        judged: One or more sets.
        threshold: 0..1.

    Raises:
        InvalidInput: As :func:`fit`.
    """
    curve = fit(judged)
    sets = [
        Kept(
            each.dataset,
            len(each.relevant),
            len(each.irrelevant),
            _kept(curve, each.relevant, threshold),
            _kept(curve, each.irrelevant, threshold),
        )
        for each in judged
    ]
    return CalibrationReport(model, curve.slope, curve.midpoint, threshold, sets)


def fit(judged: Sequence[Judged]) -> Calibration:
    """The curve of all sets together, by Newton's method.

    Raises:
        InvalidInput: A set has no relevant or no irrelevant hit, or scores do not tell the two apart.
    """
    classes = [(each.dataset, scores, label) for each in judged for scores, label in _classes(each)]
    for dataset, scores, label in classes:
        if not scores:
            kind = "relevant" if label else "irrelevant"
            raise InvalidInput(
                f"{dataset} has no {kind} hit among the best {CANDIDATES}.",
                field=dataset,
                remedy="Take a set with more documents and queries.",
            )
    x = np.concatenate([np.asarray(scores) for _, scores, _ in classes])
    y = np.concatenate([np.full(len(scores), label) for _, scores, label in classes])
    weight = np.concatenate([np.full(len(scores), 1 / len(scores) / len(classes)) for _, scores, _ in classes])
    slope, offset = _logistic(np.column_stack([x, np.ones_like(x)]), y, weight)
    if slope <= 0:
        raise InvalidInput(
            "Relevant hits score no higher than irrelevant ones.",
            field="datasets",
            remedy="Check the judgements, or take another model.",
        )
    return Calibration(slope=round(float(slope), 2), midpoint=round(float(-offset / slope), 3))


def _best(setup: Setup, hits: Sequence[NodeHit]) -> Iterator[tuple[str, NodeHit]]:
    """The best hit of each of the best documents; nodes above others are none, as in a corpus."""
    seen: set[str] = set()
    for hit in hits:
        document = None if hit.has_children or not hit.has_content else setup.document(hit.uri)
        if document is None or document in seen:
            continue
        seen.add(document)
        yield document, hit
        if len(seen) == CANDIDATES:
            break


def _classes(judged: Judged) -> tuple[tuple[list[float], float], tuple[list[float], float]]:
    return (judged.relevant, 1.0), (judged.irrelevant, 0.0)


def _logistic(x: Numbers, y: Numbers, weight: Numbers) -> Numbers:
    """Coefficients of a weighted logistic regression: the most likely ones, a ridge aside.

    Args:
        x: Shape (n, k).
        y: 0 or 1, shape (n,).
        weight: Of each, shape (n,).
    """
    found = np.zeros(x.shape[1])
    for _ in range(_MOST_STEPS):
        p = 1 / (1 + np.exp(-x @ found))
        gradient = x.T @ (weight * (y - p)) - _RIDGE * found
        hessian = (x.T * (weight * p * (1 - p))) @ x + _RIDGE * np.eye(x.shape[1])
        step = np.linalg.solve(hessian, gradient)
        # Far from the best, a whole step may overshoot.
        found = found + step * min(1.0, 5 / max(1e-12, float(np.abs(step).max())))
        if float(np.abs(step).max()) < _SETTLED:
            break
    return found


def _kept(curve: Calibration, scores: Sequence[float], threshold: float) -> float:
    return float(np.mean([curve.relevance(score) >= threshold for score in scores]))
