"""What the graph has of the knowledge base, by the settings (K7)."""

from typing import Any

from ray.serve.deployment import Application

from deployments import graph
from deployments.environment import Environment
from deployments.settings import Settings, parse, resolved

OWN = {"kb_embedder", "kb_seed_search", "kb_index", "knowledge_base"}


def names(app: Application) -> set[str]:
    """The deployments of an application."""
    found: set[str] = set()

    def look(part: Any) -> None:
        if isinstance(part, Application):
            found.add(part._bound_deployment.name)
            for argument in part._bound_deployment.init_args:
                look(argument)
        elif isinstance(part, dict):
            for each in part.values():
                look(each)

    look(app)
    return found


def settings_of(**knowledge_base: Any) -> Settings:
    return resolved(parse({"data_dir": "/x", "knowledge_base": knowledge_base}), Environment())


def test_without_being_switched_on_there_is_nothing_of_it() -> None:
    """K7."""
    assert not names(graph.build(settings_of())) & OWN
    assert not names(graph.build(settings_of(http=True))) & OWN


def test_switched_on_it_has_deployments_of_its_own() -> None:
    assert names(graph.build(settings_of(enabled=True))) >= {*OWN, "embedder", "seed_search", "ingress"}


def test_where_it_wants_the_model_of_the_graph_one_embedder_serves_both() -> None:
    same = {"name": "all-MiniLM-L6-v2", "device": "auto"}
    assert names(graph.build(settings_of(enabled=True, embedder=same))) & OWN == OWN - {"kb_embedder"}
