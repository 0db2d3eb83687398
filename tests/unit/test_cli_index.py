"""What ``strata index`` and ``strata reindex`` say."""

from contracts.records import ModelRef
from deployments.cli.common import embedder_config
from deployments.cli.index import Listing, Row, other_model
from deployments.settings import Settings, parse


def row(version: int, *, serving: bool, closed: bool) -> Row:
    return Row(version, "model", "1", 8, 100, 1_000, "green", serving, closed)


def test_a_version_left_closed_is_warned_of_unless_a_process_is_at_it() -> None:
    frozen, stuck = row(1, serving=False, closed=True), row(2, serving=True, closed=True)
    assert "strata index swap 2" in Listing((frozen, stuck)).warning()
    assert Listing((frozen, stuck), "Process 7 on host is re-embedding the index.").warning() == ""
    assert Listing((frozen, row(2, serving=True, closed=False))).warning() == ""


def test_the_settings_have_to_follow_a_swap_to_another_model() -> None:
    said = other_model(Settings(), ModelRef("bge-small-zh-v1.5", "1.5", 512))
    assert "keywords only" in said and "embedder.name to bge-small-zh-v1.5" in said
    assert other_model(Settings(), ModelRef("all-MiniLM-L6-v2", "2", 384)) == ""
    assert other_model(parse({"embedder": {"backend": "deterministic"}}), ModelRef("deterministic-v1", "1", 8)) == ""


def test_another_model_runs_like_that_of_the_settings_but_keeps_nothing_of_its_identity() -> None:
    settings = parse({"embedder": {"threads": 7, "device": "cpu", "dimensions": 384, "query_prefix": "q: "}})
    other = embedder_config(settings, "bge-small-zh-v1.5")
    assert (other.name, other.threads, other.device) == ("bge-small-zh-v1.5", 7, "cpu")
    assert (other.dimensions, other.query_prefix, other.path) == (None, None, None)
    assert embedder_config(settings, None) is embedder_config(settings, settings.embedder.name) is settings.embedder
