import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from models.batching import batches, pad

LENGTHS = st.lists(st.integers(1, 600), max_size=80)
BUDGETS = st.integers(1, 4096)


@given(LENGTHS, BUDGETS)
def test_every_text_is_in_exactly_one_batch(lengths: list[int], budget: int) -> None:
    positions = [i for batch in batches(lengths, budget) for i in batch]
    assert sorted(positions) == list(range(len(lengths)))


@given(LENGTHS, BUDGETS)
def test_a_batch_with_its_padding_stays_within_the_budget_unless_it_is_one_text(
    lengths: list[int], budget: int
) -> None:
    for batch in batches(lengths, budget):
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


@given(LENGTHS, BUDGETS)
def test_texts_of_like_length_go_together(lengths: list[int], budget: int) -> None:
    flat = [lengths[i] for batch in batches(lengths, budget) for i in batch]
    assert flat == sorted(lengths, reverse=True)


@given(st.integers(1, 64), st.integers(1, 40), st.integers(1, 8))
def test_equal_texts_fill_the_budget(length: int, count: int, fit: int) -> None:
    sizes = [len(batch) for batch in batches([length] * count, fit * length)]
    assert all(size == fit for size in sizes[:-1])


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=12), min_size=1, max_size=8))
def test_padding_is_on_the_right_and_masked(rows: list[list[int]]) -> None:
    ids, mask = pad(rows, pad_id=0)
    assert ids.shape == mask.shape == (len(rows), max(map(len, rows)))
    for row, padded, ones in zip(rows, ids, mask, strict=True):
        assert padded[: len(row)].tolist() == row
        assert not padded[len(row) :].any()
        assert ones.tolist() == [1] * len(row) + [0] * (ids.shape[1] - len(row))
    assert ids.dtype == mask.dtype == np.int64
