"""Another model on Elasticsearch: a new version of the index beside the old one, and the database told (K4)."""

from pathlib import Path
from uuid import uuid4

import pytest

from contracts.context import RequestContext
from contracts.errors import ConfigError
from contracts.records import ModelRef
from corpora.knowledge_base.types import ChunkText, Entity
from deployments.backends import open_writer
from deployments.environment import Environment
from deployments.knowledge_base import reembedding
from deployments.knowledge_base.opening import local_knowledge_base, location
from deployments.settings import Settings, parse, resolved
from models.deterministic import DeterministicEmbedder
from tests.support.kb import PATIENT
from tests.support.waiting import until

CTX = RequestContext("acme")
QUERY = "a long red dress"


@pytest.fixture
def settings(tmp_path: Path, elasticsearch_url: str) -> Settings:
    elastic = {
        "prefix": f"kb-{uuid4().hex[:12]}",
        "connection": {"hosts": [elasticsearch_url]},
        "recall": {"resolve_seconds": 0.2},
    }
    raw = {
        "data_dir": str(tmp_path),
        "index": {"backend": "elasticsearch", "elastic": elastic},
        "knowledge_base": {**PATIENT, "embedder": {"dimensions": 32}},
    }
    return resolved(parse(raw), Environment())


def newer() -> DeterministicEmbedder:
    """The same model in a second version, and shorter."""
    embedder = DeterministicEmbedder(16)
    embedder._model = ModelRef("deterministic-v1", "2", 16)
    return embedder


async def test_another_version_serves_after_reembedding_and_a_run_that_was_stopped_is_gone_on_with(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K4: resumable, the old model searched meanwhile."""
    async with local_knowledge_base(settings) as (kb, worker, _):
        await kb.put_entities(CTX, [Entity(name, "garment", "published") for name in ("dress", "coat")])
        await kb.upsert_chunks(CTX, [ChunkText("d", "dress", QUERY), ChunkText("c", "coat", "a warm coat")])
        await worker.drain()
        assert (await kb.search(QUERY, CTX)).results[0].vec_score == pytest.approx(1, abs=0.02)

        monkeypatch.setattr(reembedding, "load_embedder", lambda config: newer())

        async def killed(*_: object) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
            stopped.setattr(reembedding, "mark_all", killed)
            await reembedding.reembed(settings)
        assert {each.embedding_version for each in await kb.chunks(CTX, "dress")} == {"1"}
        report = await reembedding.reembed(settings)
        assert (report.model.version, report.entities, report.chunks) == ("2", 0, 2)
        assert {each.embedding_version for each in await kb.chunks(CTX, "dress")} == {"2"}

        # The service with the old model: words only, said so, and its writes are kept for the new one.
        async def without_vectors() -> bool:
            outcome = await kb.search(QUERY, CTX)
            assert outcome.results[0].chunk_id == "d"
            return outcome.degraded and outcome.results[0].vec_score == 0

        await until(without_vectors)  # It looks now and then which version serves.
        await kb.upsert_chunks(CTX, [ChunkText("e", "dress", "another text")])
        with pytest.raises(ConfigError):
            await worker.drain()

    monkeypatch.setattr("deployments.knowledge_base.opening.load_embedder", lambda config: newer())
    async with local_knowledge_base(settings) as (kb, worker, _):
        assert (await kb.search(QUERY, CTX)).results[0].vec_score == pytest.approx(1, abs=0.02)
    index = await open_writer(*location(settings))
    await index.versions.destroy()  # type: ignore[attr-defined]
    await index.close()
