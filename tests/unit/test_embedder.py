from collections.abc import Sequence

import numpy as np
import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageFailed, StageTimeout
from contracts.ports import Embedded, TextRole, Vectors
from contracts.records import ModelRef
from contracts.stages import EmbedRequest
from stages.embedder import EmbedderStage

CTX = RequestContext("acme")
# Made when the test is collected, so it must outlast the whole run.
LATER = Deadline.after(86_400)


class FakeEmbedder:
    """A text's vector starts with its length; texts over 5 characters count as cut."""

    model = ModelRef("fake", "1", 3)

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], TextRole]] = []

    def vectors(self, texts: Sequence[str]) -> Vectors:
        return np.array([[len(text), 0, 1] for text in texts], dtype=np.float32).reshape(-1, 3)

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        self.asked.append((list(texts), role))
        return Embedded(self.vectors(texts), tuple(i for i, text in enumerate(texts) if len(text) > 5))


class BrokenEmbedder(FakeEmbedder):
    """Returns what it is given, or raises it."""

    def __init__(self, answer: Exception | Vectors) -> None:
        super().__init__()
        self.answer = answer

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        if isinstance(self.answer, Exception):
            raise self.answer
        return Embedded(self.answer)


async def test_equal_texts_are_embedded_once_and_come_back_in_order() -> None:
    embedder = FakeEmbedder()
    answer = await EmbedderStage(embedder)(CTX, LATER, EmbedRequest(("run", "stop it", "run", "go", "stop it")))
    assert embedder.asked == [(["run", "stop it", "go"], "query")]
    assert answer.unpack()[:, 0].tolist() == [3, 7, 3, 2, 7]
    assert answer.truncated == (1, 4)
    assert answer.model == embedder.model


async def test_the_role_is_passed_on() -> None:
    embedder = FakeEmbedder()
    await EmbedderStage(embedder)(CTX, LATER, EmbedRequest(("run",), role="passage"))
    assert embedder.asked == [(["run"], "passage")]


async def test_no_texts_make_no_rows() -> None:
    answer = await EmbedderStage(FakeEmbedder())(CTX, LATER, EmbedRequest(()))
    assert answer.unpack().shape == (0, 3)


async def test_work_is_not_begun_after_the_deadline() -> None:
    embedder = FakeEmbedder()
    with pytest.raises(StageTimeout) as late:
        await EmbedderStage(embedder)(CTX, Deadline.after(-1), EmbedRequest(("run",)))
    assert late.value.stage == "embedder"
    assert embedder.asked == []


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("the text was: secret"),
        np.ones((2, 3), np.float32),
        np.ones((1, 4), np.float32),
        np.full((1, 3), np.nan, np.float32),
    ],
)
async def test_a_model_that_fails_or_returns_garbage_fails_the_stage_without_its_text(
    answer: Exception | Vectors,
) -> None:
    with pytest.raises(StageFailed) as failed:
        await EmbedderStage(BrokenEmbedder(answer))(CTX, LATER, EmbedRequest(("secret",)))
    assert failed.value.stage == "embedder"
    assert "secret" not in str(failed.value)
