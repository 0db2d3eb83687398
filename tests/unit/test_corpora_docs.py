"""The corpus that ``docs/corpora.md`` shows, taken from there, installed and used."""

import re
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from contracts.context import RequestContext
from contracts.errors import InvalidBody, MissingDimension, TargetForbidden
from corpora.rag.registry import RegistryConfig, load_adapters
from index.embedded.index import EmbeddedIndex
from tests.support.small_corpora import small_corpora

DOCS = Path(__file__).parents[2] / "docs" / "corpora.md"
SUPPORT = RequestContext("acme", user_space="user:ann", spaces=("team:support",))
BODY = {
    "project": "shop",
    "tickets": [
        {"number": "1", "text": "The basket forgets its items."},
        {"number": "2", "text": "The basket is empty after a login.", "state": "closed"},
    ],
}


def block(kind: str, holding: str) -> str:
    """The one code block of a kind that holds some words."""
    (found,) = (
        code for code in re.findall(rf"```{kind}\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL) if holding in code
    )
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryConfig:
    """The package of the docs, installed and enabled."""
    ((group, points),) = tomllib.loads(block("toml", "strata.corpora"))["project"]["entry-points"].items()
    ((name, target),) = points.items()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "strata_tickets", raising=False)
    (tmp_path / "strata_tickets.py").write_text(block("python", "class Tickets"))
    folder = tmp_path / "strata_tickets-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strata-tickets\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    return RegistryConfig(**yaml.safe_load(block("yaml", "third_party"))["corpora"])


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[EmbeddedIndex]:
    index = await EmbeddedIndex.open(tmp_path / "index", write=True)
    yield index
    await index.close()


def test_the_example_is_short() -> None:
    assert len(block("python", "class Tickets").splitlines()) <= 60


async def test_the_example_ingests_and_retrieves_through_the_core(config: RegistryConfig, index: EmbeddedIndex) -> None:
    corpora = small_corpora(index, load_adapters(config))
    await corpora.ingest(SUPPORT, "tickets", BODY)
    await corpora.ingest(SUPPORT, "tickets", BODY | {"project": "blog"})
    found = await corpora.hits(SUPPORT, "tickets", "basket", dimensions={"project": "shop"})
    assert [(hit.source_id, hit.text) for hit in found] == [("shop/1", "The basket forgets its items.")]
    both = {"dimensions": {"project": "shop"}, "options": {"states": ["open", "closed"]}}
    found = await corpora.hits(SUPPORT, "tickets", "basket", **both)
    assert {hit.source_id for hit in found} == {"shop/1", "shop/2"}


def test_the_example_refuses_what_it_should(config: RegistryConfig) -> None:
    tickets = load_adapters(config)["tickets"]
    with pytest.raises(MissingDimension):
        tickets.build_retrieve_filter(SUPPORT, {})
    with pytest.raises(InvalidBody) as caught:
        tickets.build_ingest_documents(SUPPORT, {**BODY, "tickets": [{"number": "1"}]})
    assert caught.value.field == "tickets.0.text"
    with pytest.raises(TargetForbidden):
        tickets.build_retrieve_filter(RequestContext("acme", user_space="user:bob"), {"project": "shop"})
