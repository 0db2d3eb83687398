import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer

from contracts.ports import Vectors
from contracts.records import ModelRef
from models.encoder import EncoderEmbedder
from models.tokens import TextTokenizer
from tests.support.models import WORDS, word_tokenizer

DIMENSIONS = len(WORDS)
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS[4:]), min_size=1, max_size=12).map(" ".join), max_size=20)


class FakeEngine:
    """A vector counts the tokens of its row. Each batch waits for ``gate``."""

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        self.batches.append([list(row) for row in rows])
        self.begun.set()
        self.gate.wait()
        return np.stack([np.bincount(row, minlength=DIMENSIONS) for row in rows]).astype(np.float32)


def embedder(engine: FakeEngine, batch_tokens: int = 64, max_tokens: int = 16) -> EncoderEmbedder:
    return EncoderEmbedder(
        engine,
        TextTokenizer(word_tokenizer(), max_tokens, 0),
        ModelRef("fake", "1", DIMENSIONS),
        prefixes={"query": "how ", "passage": ""},
        batch_tokens=batch_tokens,
    )


def counts(text: str) -> list[int]:
    words = ["[CLS]", *text.split(), "[SEP]"]
    return [words.count(word) for word in WORDS]


@given(SENTENCES, st.integers(1, 100))
async def test_vectors_come_in_the_order_of_the_texts(texts: list[str], batch_tokens: int) -> None:
    embedded = await embedder(FakeEngine(), batch_tokens).embed(texts, "passage")
    assert embedded.vectors.dtype == np.float32
    assert embedded.vectors.shape == (len(texts), DIMENSIONS)
    assert embedded.vectors.astype(int).tolist() == [counts(text) for text in texts]
    assert embedded.truncated == ()


async def test_the_prefix_of_the_role_is_put_before_each_text() -> None:
    model = embedder(FakeEngine())
    query = await model.embed(["run"], "query")
    passage = await model.embed(["run", "how run"], "passage")
    assert query.vectors[0].tolist() == passage.vectors[1].tolist() != passage.vectors[0].tolist()


async def test_a_long_text_is_cut_at_the_limit_and_reported() -> None:
    engine = FakeEngine()
    embedded = await embedder(engine, max_tokens=8).embed(["run", "run " * 7, "run " * 6], "passage")
    assert embedded.truncated == (1,)
    assert max(len(row) for batch in engine.batches for row in batch) == 8


async def test_batches_of_a_caller_that_gave_up_are_never_begun() -> None:
    """C40: what nobody waits for any more does not take time from others."""
    engine = FakeEngine()
    engine.gate.clear()
    model = embedder(engine, batch_tokens=1)
    abandoned = asyncio.create_task(model.embed(["run"] * 50, "passage"))
    assert await asyncio.to_thread(engine.begun.wait, 10)
    abandoned.cancel()
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    engine.gate.set()
    await model.embed(["stop"], "passage")
    assert len(engine.batches) == 2


async def test_a_query_waits_for_one_batch_of_an_ingest_and_not_for_all() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    model = embedder(engine, batch_tokens=1)
    ingest = asyncio.create_task(model.embed(["run"] * 50, "passage"))
    assert await asyncio.to_thread(engine.begun.wait, 10)
    query = asyncio.create_task(model.embed(["stop"], "passage"))
    await asyncio.sleep(0)
    engine.gate.set()
    await query
    assert not ingest.done()
    await ingest


def test_lone_surrogates_do_no_harm() -> None:
    rows, _ = TextTokenizer(word_tokenizer(), 16, 0).encode(["run \ud800 stop"])
    assert len(rows[0]) == 5


def test_a_text_that_leaves_no_token_still_has_one() -> None:
    tokenizer = word_tokenizer()
    tokenizer.post_processor = None
    assert TextTokenizer(tokenizer, 16, 0).encode([" "]) == ([[0]], [False])


@pytest.mark.parametrize(("vocabulary", "lower"), [(["ray", "##s"], True), (["Ray", *"ABCDEFGHIJKLM"], False)])
def test_letter_case_is_mended_only_where_the_vocabulary_has_no_capitals(vocabulary: list[str], lower: bool) -> None:
    tokenizer = Tokenizer(WordPiece({word: i for i, word in enumerate(["[UNK]", *vocabulary])}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=False)
    TextTokenizer(tokenizer, 16, 0)
    assert tokenizer.normalizer.lowercase is lower
    assert tokenizer.encode("Ray").tokens == (["ray"] if lower else ["Ray"])
