"""Stages that do nothing: each answers at once what the real one answered to the same query.

So what travels is real, and the time it takes is what the graph itself costs.
"""

from abc import ABCMeta
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.stages import EmbedRequest, PlanRequest, Stage
from deployments.stages.base import StageReplica
from deployments.transport import encode_call, encode_result
from stages.chain import Stages

# What a stage answered, by stage and query.
Answers = Mapping[str, Mapping[str, Any]]


def text_of(request: Any) -> str:
    """The query that a stage's request belongs to."""
    match request:
        case PlanRequest():
            return request.query
        case EmbedRequest():
            return request.texts[0]
    return cast("str", request.queries[0].text)


class Recorder:
    """Watches what goes in and out of the stages."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self._calls: Counter[str] = Counter()
        self._bytes: dict[str, list[tuple[int, int]]] = {}

    def watched(self, stages: Stages) -> Stages:
        """The same stages, watched."""
        return Stages(**{name: partial(self._call, name, stage) for name, stage in vars(stages).items()})

    def plain(self) -> set[str]:
        """Queries that went through each stage exactly once: what a stage answered is all there is to know."""
        return {text for text, calls in self._calls.items() if calls == len(self.answers)}

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Mean bytes of a call and of its reply on the wire, by stage."""
        means = {name: np.mean(pairs, axis=0).astype(int).tolist() for name, pairs in self._bytes.items()}
        return {name: (call, reply) for name, (call, reply) in means.items()}

    async def _call(
        self, name: str, stage: Stage[Any, Any], ctx: RequestContext, deadline: Deadline, request: Any
    ) -> Any:
        answer = await stage(ctx, deadline, request)
        text = text_of(request)
        self.answers.setdefault(name, {})[text] = answer
        self._calls[text] += 1
        self._bytes.setdefault(name, []).append((len(encode_call(ctx, deadline, request)), len(encode_result(answer))))
        return answer


class Empty(StageReplica[Any, Any]):
    """A replica whose stage has its answers ready."""

    answers: ClassVar[Mapping[str, Any]]

    async def open(self, *args: Any) -> Stage[Any, Any]:
        """Nothing to build."""
        return self._answer

    def reconfigure(self, batch: dict[str, Any]) -> None:
        """There are no batches."""

    async def _answer(self, ctx: RequestContext, deadline: Deadline, request: Any) -> Any:
        return self.answers[text_of(request)]


def emptied(answers: Answers) -> Callable[[type[StageReplica[Any, Any]]], type[StageReplica[Any, Any]]]:
    """Makes of the class of a stage's replica the one that has the answers ready; for ``graph.build``."""

    def empty(kind: type[StageReplica[Any, Any]]) -> type[StageReplica[Any, Any]]:
        own = {"name": kind.name, "request_type": kind.request_type, "answers": answers.get(kind.name, {})}
        return cast("type[StageReplica[Any, Any]]", ABCMeta(kind.__name__, (Empty,), own))

    return empty
