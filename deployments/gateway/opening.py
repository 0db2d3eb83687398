"""The gateway opened from the settings, over a graph wherever that runs."""

from collections.abc import Callable

from contracts.filters import In
from corpora.memory_bodies import SENSITIVITIES
from database.engine import Database
from deployments.environment import Environment
from deployments.service import Service
from deployments.settings import Settings
from gateway.graph_upstream import GraphUpstream
from gateway.http_upstream import HttpUpstream
from gateway.llm import LanguageModel
from gateway.login import Login
from gateway.service import Gateway
from gateway.store import GatewayStore
from gateway.upstream import Upstream
from gateway.walk import Walk
from stages.redaction import Redactor


def open_gateway(
    settings: Settings, database: Database, service: Service, refused: Callable[[str], None] = lambda reason: None
) -> Gateway:
    """Open the gateway in the event loop that will use it.

    Args:
        settings: All of them.
        database: Where its users are; stays the caller's to close.
        service: The graph's two walks.
        refused: Told why somebody was not let in, in a word.

    Raises:
        ConfigError: A secret's file can't be read.
    """
    config, store = settings.gateway, GatewayStore(database)
    return Gateway(store, Login(store, config.login, refused), _upstream(settings, service), config)


def _upstream(settings: Settings, service: Service) -> Upstream:
    config, environment = settings.gateway, Environment.read()
    if config.upstream == "http":
        return HttpUpstream(config.http, environment.secret("gateway_upstream_key"))
    redactor = Redactor(settings.redaction)
    walk = Walk(service.chain, service.reader, redactor, config.graph.candidates)
    model = LanguageModel(config.llm, environment.secret("gateway_llm_key")) if config.llm.base_url else None
    # Who has a user's key is cleared for what a user is.
    cleared = SENSITIVITIES[: SENSITIVITIES.index(settings.corpora.memory.clearance.user) + 1]
    return GraphUpstream(walk, config.graph, model, In("attrs.sensitivity_level", cleared))
