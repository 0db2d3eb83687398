"""The graph as the gateway's upstream, on a stand-in index."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contracts.deadline import Deadline
from contracts.records import corpus_source
from gateway.config import GraphUpstreamConfig
from gateway.graph_upstream import GraphUpstream
from gateway.upstream import Owner, UpstreamAnswer, UpstreamQuery, User
from gateway.walk import Walk
from stages.chain import Chain, ChainConfig
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from tests.support.chain import fake_embedder, stages
from tests.support.fake_index import FakeIndex, record

ANN = User("Ann!", "acme", "memory.ann")
NEAR, FAR = (1.0, 0.0), (0.0, 1.0)


def at(cosine: float) -> tuple[float, float]:
    return (cosine, (1 - cosine**2) ** 0.5)


def memory(name: str, text: str = "", of: str = "fact", *, space: str = "memory.ann", **fields: Any) -> dict[str, Any]:
    """A record of the memory corpus."""
    attrs = {"memory_type": (of,), "source": (name.split("/", maxsplit=1)[0],), **fields.pop("attrs", {})}
    return record(
        f"strata://{space}/memory/{name}",
        text or name,
        **{
            "context_type": "memory",
            "source_id": corpus_source("memory", space),
            "attrs": attrs,
            "kind": "memory",
            "parent_uri": "",
            "content": text or name,
            "vector": NEAR,
        }
        | fields,
    )


class FakeModel:
    """A language model that answers what the test says, in order; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def ask(self, task: str, material: Any, deadline: Deadline) -> dict[str, Any]:
        self.asked.append(material)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing."""


def upstream(
    index: FakeIndex, model: FakeModel | None = None, *, must: Any = None, embedder: Any = fake_embedder, **config: Any
) -> GraphUpstream:
    chain = Chain(replace(stages(index), embedder=embedder), ChainConfig())
    redactor = Redactor(RedactionConfig())
    reader = Reader(index, index, index, ReaderConfig(), redactor)
    settings = GraphUpstreamConfig(**config)
    language_model: Any = model
    return GraphUpstream(Walk(chain, reader, redactor, settings.candidates), settings, language_model, must)


async def search(
    records: Sequence[dict[str, Any]] | FakeIndex,
    query: str = "green tea",
    *,
    on: Any = None,
    seconds: float = 10,
    **changes: Any,
) -> UpstreamAnswer:
    index = records if isinstance(records, FakeIndex) else FakeIndex(records)
    fields: dict[str, Any] = {
        "owner": Owner("user_id", "Ann!"),
        "query": query,
        "method": "hybrid",
        "top_k": 8,
        "radius": None,
        "include_profile": False,
        "enable_llm_rerank": False,
        "app_id": "default",
        "project_id": "default",
    }
    asked = UpstreamQuery(
        **fields | {name: changes.pop(name) for name in list(changes) if name in fields or name == "filters"}
    )
    return await (on or upstream(index, **changes)).search(ANN, Deadline.after(seconds), asked)


def ids(answer: UpstreamAnswer, array: str = "episodes") -> list[str]:
    return [item["id"] for item in getattr(answer, array)]


WORDS, MEANING = memory("words", "green tea", vector=FAR), memory("meaning", "a hot drink", vector=at(0.9))
BOTH = memory("both", "green leaves", vector=at(0.8))
