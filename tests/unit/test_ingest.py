import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from contracts.errors import ConfigError, InvalidInput, StageFailed
from contracts.ports import Embeddable, Embedded, JournalEntry, JournalState, TextRole
from contracts.records import Document, ModelRef, Node
from index.ingest import (
    Ingest,
    IngestConfig,
    IngestReport,
    Problem,
    Progress,
    silent,
)

MODEL = ModelRef("fake", "1", 8)
SOURCE = "strata://shared/s"


class FakeWriter:
    """Writer and journal in memory, whose writes can be made to fail."""

    def __init__(self) -> None:
        self.stored: dict[str, Embeddable] = {}
        self.puts: list[list[str]] = []
        self.states: list[tuple[str, JournalState]] = []
        self.details: dict[str, str] = {}
        self.optimized = 0
        self.refuses: Callable[[str], Exception | None] = lambda document_id: None

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        for item in documents:
            if error := self.refuses(item.document.document_id):
                raise error
        self.puts.append([item.document.document_id for item in documents])
        self.stored |= {item.document.document_id: item for item in documents}
        await self.record(account_id, source_id, self.puts[-1], "stored")

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        for document_id in document_ids:
            self.stored.pop(document_id, None)
        self.states = [(name, state) for name, state in self.states if name not in document_ids]

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        return {name: item.document.fingerprint for name, item in self.stored.items()}

    async def optimize(self) -> None:
        self.optimized += 1

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str = ""
    ) -> None:
        self.states += [(document_id, state) for document_id in document_ids]
        self.details |= {document_id: detail for document_id in document_ids if detail}

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        last = dict(self.states)
        return [JournalEntry(SOURCE, name, state) for name, state in last.items() if state != "stored"]


class FakeEmbedder:
    """Vectors by the texts' characters; ``on_call`` may raise."""

    model = MODEL

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0
        self.on_call: Callable[[Sequence[str]], None] = lambda texts: None

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        assert role == "passage"
        self.calls += 1
        self.on_call(texts)
        self.texts += texts
        rows = np.array([[1 + text.count(letter) for letter in "abcdefgh"] for text in texts], dtype=np.float32)
        cut = tuple(place for place, text in enumerate(texts) if len(text) > 100)
        return Embedded(rows / np.linalg.norm(rows, axis=1, keepdims=True), cut)


class FakeSource:
    """What the test says; counts how much was asked for."""

    source_id = SOURCE

    def __init__(self, *items: Document | Problem | Exception) -> None:
        self.items = items
        self.pulled = 0

    def documents(self) -> Iterator[Document | Problem]:
        for item in self.items:
            self.pulled += 1
            if isinstance(item, Exception):
                raise item
            yield item


def node(name: str, text: str = "some text", **more: object) -> Node:
    return Node(f"{SOURCE}/{name}", "", name, "record", "resource", "document", text, **more)  # type: ignore[arg-type]


def doc(name: str, text: str = "some text") -> Document:
    return Document(name, f"hash of {text}", (node(name, text),))


class Bench:
    """An ingest on fakes."""

    def __init__(self, **config: int) -> None:
        self.writer = FakeWriter()
        self.embedder = FakeEmbedder()
        self.ingest = Ingest(self.writer, self.writer, self.embedder, IngestConfig(**config))  # type: ignore[arg-type]

    async def run(self, *items: Document | Problem | Exception, progress: Progress = silent) -> IngestReport:
        return await self.ingest.run("acme", FakeSource(*items), progress)


def counts(report: IngestReport) -> tuple[int, int, int, int, int]:
    return report.added, report.changed, report.unchanged, report.removed, report.failed


async def test_a_first_run_stores_all_documents_and_optimises():
    bench = Bench()
    report = await bench.run(doc("a"), doc("b"))
    assert counts(report) == (2, 0, 0, 0, 0)
    assert report.nodes == 2
    assert set(bench.writer.stored) == {"a", "b"}
    assert bench.writer.optimized == 1


async def test_the_same_source_again_embeds_and_writes_nothing():
    bench = Bench()
    await bench.run(doc("a"), doc("b"))
    bench.embedder.calls = 0
    report = await bench.run(doc("a"), doc("b"))
    assert counts(report) == (0, 0, 2, 0, 0)
    assert bench.embedder.calls == 0
    assert len(bench.writer.puts) == 1


async def test_only_what_changed_is_written_and_what_vanished_is_removed():
    bench = Bench()
    await bench.run(doc("a"), doc("b"), doc("c"))
    report = await bench.run(doc("a"), doc("b", "other text"))
    assert counts(report) == (0, 1, 1, 1, 0)
    assert bench.writer.puts[-1] == ["b"]
    assert set(bench.writer.stored) == {"a", "b"}


@pytest.mark.parametrize(
    ("problem", "left"),
    [
        (Problem("guides/b.md", 0, "is not UTF-8.", "guides/b.md"), {"a", "guides/b.md"}),
        (Problem("guides", 0, "can't be read.", "guides/"), {"a", "guides/b.md"}),
        (Problem("s.jsonl", 3, "No JSON."), {"a", "guides/b.md", "z"}),
        (Problem("guides/b.md", 0, "is hidden; skipped.", "guides/b.md", skipped=True), {"a"}),
    ],
)
async def test_what_a_problem_may_hide_is_not_removed(problem: Problem, left: set[str]):
    bench = Bench()
    await bench.run(doc("a"), doc("guides/b.md"), doc("z"))
    report = await bench.run(doc("a"), problem)
    assert set(bench.writer.stored) == left
    assert report.kept == len(left) - 1
    assert report.problems == [problem]
    assert (report.failed, report.skipped) == ((0, 1) if problem.skipped else (1, 0))


async def test_a_source_that_breaks_off_removes_nothing():
    bench = Bench()
    await bench.run(doc("a"), doc("b"))
    with pytest.raises(InvalidInput):
        await bench.run(doc("a"), InvalidInput("The file went away."))
    assert set(bench.writer.stored) == {"a", "b"}


async def test_a_document_that_cannot_be_embedded_fails_alone():
    bench = Bench()

    def refuse(texts: Sequence[str]) -> None:
        if any("poison" in text for text in texts):
            raise RuntimeError("the text was: poison")

    bench.embedder.on_call = refuse
    report = await bench.run(doc("a"), doc("b", "poison"), doc("c"))
    assert counts(report) == (2, 0, 0, 0, 1)
    assert set(bench.writer.stored) == {"a", "c"}
    assert bench.writer.states[-1] == ("c", "stored")
    assert ("b", "failed") in bench.writer.states
    assert "poison" not in bench.writer.details["b"]


async def test_a_document_that_cannot_be_written_fails_alone_and_says_why():
    bench = Bench()
    bench.writer.refuses = lambda document_id: OSError(28, "No space left") if document_id == "b" else None
    report = await bench.run(doc("a"), doc("b"), doc("c"))
    assert set(bench.writer.stored) == {"a", "c"}
    assert "No space left" in report.problems[0].message


async def test_a_failed_document_is_tried_again_by_the_next_run():
    bench = Bench()
    bench.writer.refuses = lambda document_id: OSError(5, "I/O error")
    await bench.run(doc("a"))
    bench.writer.refuses = lambda document_id: None
    assert counts(await bench.run(doc("a"))) == (1, 0, 0, 0, 0)


async def test_the_wrong_model_ends_the_run():
    bench = Bench()
    bench.writer.refuses = lambda document_id: ConfigError("Another model.")
    with pytest.raises(ConfigError):
        await bench.run(doc("a"), doc("b"))


async def test_many_failures_in_a_row_end_the_run():
    bench = Bench(give_up_after=3, write_nodes=1)
    bench.writer.refuses = lambda document_id: OSError(28, "No space left")
    with pytest.raises(StageFailed, match="3 documents failed"):
        await bench.run(*(doc(str(number)) for number in range(10)))


async def test_an_interrupted_run_is_taken_up_where_it_stopped():
    """Design decision 10: what is stored whole is done, everything else is done again, nothing is lost."""
    bench = Bench(write_nodes=2)

    def interrupt(texts: Sequence[str]) -> None:
        if bench.embedder.calls == 2:
            raise asyncio.CancelledError

    bench.embedder.on_call = interrupt
    documents = [doc(str(number)) for number in range(6)]
    with pytest.raises(asyncio.CancelledError):
        await bench.run(*documents)
    assert set(bench.writer.stored) == {"0", "1"}
    bench.embedder.on_call = lambda texts: None
    assert counts(await bench.run(*documents)) == (4, 0, 2, 0, 0)
    assert await bench.writer.unfinished("acme") == []


async def test_what_a_crash_left_half_done_is_removed_when_the_source_no_longer_holds_it():
    bench = Bench()
    await bench.writer.record("acme", SOURCE, ["gone"], "embedded")
    report = await bench.run(doc("a"))
    assert report.removed == 0
    assert await bench.writer.unfinished("acme") == []


async def test_every_document_passes_the_states_in_order():
    bench = Bench()
    await bench.run(doc("a"))
    assert bench.writer.states == [("a", "parsed"), ("a", "embedded"), ("a", "stored")]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (doc("a", "again"), "twice"),
        (Document("b", "1", (node("a"),)), "twice"),
        (Document("b", "1", (node("b"), node("b"))), "twice"),
        (Document("b", "1", ()), "no nodes"),
        (Document("b", "1", (node("b/"),)), "canonical"),
        (Document("b", "1", (node("../b"),)), "relative"),
        (Document("b", "1", (Node(f"{SOURCE}/b", "", "", "record", "resource", "document", " "),)), "neither a name"),
    ],
)
async def test_a_document_that_may_not_be_stored_is_a_problem_and_the_rest_goes_on(second: Document, says: str):
    bench = Bench()
    report = await bench.run(doc("a"), second, doc("c"))
    assert set(bench.writer.stored) == {"a", "c"}
    assert bench.writer.stored["a"].document == doc("a")
    assert says in report.problems[0].message
    assert report.failed == 1


async def test_a_vector_is_the_normalised_mean_of_the_texts_that_a_node_names():
    bench = Bench()
    nodes = (node("a", vector_texts=("aaaa", "bb")), node("b", "text"), node("c", vector_texts=("aaaa", " ")))
    await bench.run(Document("d", "1", nodes))
    assert bench.embedder.texts == ["aaaa", "bb", "b\ntext", "aaaa"]
    alone = (await bench.embedder.embed(["aaaa", "bb"], "passage")).vectors
    mean = alone.sum(axis=0) / np.linalg.norm(alone.sum(axis=0))
    vectors = bench.writer.stored["d"].vectors
    assert vectors.shape == (3, 8)
    assert vectors.dtype == np.float32
    assert np.allclose(vectors[0], mean)
    assert np.allclose(vectors[2], alone[0])


async def test_a_source_streams_and_is_never_held_whole():
    bench = Bench(read_documents=2, write_nodes=4)
    source = FakeSource(*(doc(str(number)) for number in range(100)))
    pulled_at_write: list[int] = []
    bench.embedder.on_call = lambda texts: pulled_at_write.append(source.pulled - len(bench.writer.stored))
    await bench.ingest.run("acme", source)
    assert len(bench.writer.stored) == 100
    assert max(pulled_at_write) <= 4 + 2


async def test_texts_are_batched_over_documents_and_cut_ones_are_counted():
    bench = Bench(embed_texts=3)
    report = await bench.run(*(doc(str(number)) for number in range(6)), doc("long", "word " * 50))
    assert bench.embedder.calls == 3
    assert report.truncated == 1


async def test_progress_tells_of_every_phase():
    bench = Bench()
    await bench.run(doc("a"), doc("gone"))
    told: list[tuple[str, int, int | None]] = []
    await bench.run(doc("a"), doc("b"), progress=lambda phase, done, total: told.append((phase, done, total)))
    assert told == [
        ("read", 2, None),
        ("embed", 1, None),
        ("write", 1, None),
        ("remove", 1, 1),
        ("optimize", 0, 1),
        ("optimize", 1, 1),
    ]


async def test_a_report_lists_so_many_problems_and_counts_them_all():
    bench = Bench(max_problems=2)
    report = await bench.run(*(Problem("s.jsonl", line, "No JSON.") for line in range(1, 6)))
    assert report.failed == 5
    assert [problem.line for problem in report.problems] == [1, 2]
    assert set(report.seconds) == {"read", "embed", "write", "remove", "optimize"}
