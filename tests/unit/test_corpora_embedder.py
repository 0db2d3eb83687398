"""The graph's embedder as an ingest uses it, over a stand-in for the stage."""

import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed
from contracts.records import ModelRef
from contracts.stages import EmbedRequest, QueryVectors
from deployments.corpora.embedder import StageEmbedder

MODEL = ModelRef("m", "1", 2)


class FakeStage:
    """Embeds a text as its number, and cuts those that say so."""

    def __init__(self) -> None:
        self.models = [MODEL]
        self.calls: list[EmbedRequest] = []

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
        model = self.models[min(len(self.calls), len(self.models) - 1)]
        self.calls.append(request)
        vectors = np.array([[float(text.strip("!")), 0.0] for text in request.texts], dtype=np.float32)
        cut = tuple(number for number, text in enumerate(request.texts) if text.endswith("!"))
        return QueryVectors.pack(model, vectors, cut)


async def test_texts_go_in_small_calls_and_come_back_in_order() -> None:
    stage = FakeStage()
    embedder = StageEmbedder(stage, texts=2, seconds=1)
    found = await embedder.embed(["0", "1", "2!", "3", "4!"], "passage")
    assert found.vectors[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found.truncated == (2, 4)
    assert [len(call.texts) for call in stage.calls] == [2, 2, 1]
    assert {call.role for call in stage.calls} == {"passage"}
    assert embedder.model == MODEL


async def test_vectors_of_two_models_are_never_mixed() -> None:
    stage = FakeStage()
    stage.models = [MODEL, ModelRef("m", "2", 2)]
    with pytest.raises(StageFailed):
        await StageEmbedder(stage, texts=1, seconds=1).embed(["0", "1"], "passage")


async def test_before_the_first_vectors_there_is_no_model() -> None:
    with pytest.raises(StageFailed):
        _ = StageEmbedder(FakeStage(), texts=1, seconds=1).model
