"""The route of the gateway: ``POST /memories/search``."""

import time

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from contracts.context import RequestContext
from deployments.api import Api
from deployments.gateway.observer import GatewayLog, GatewayMetrics
from deployments.gateway.openapi import NAME, PATH, section
from deployments.http_errors import as_strata_error, json_response
from deployments.identity.caller import Caller
from deployments.openapi import Section
from gateway.requests import SearchMemoriesRequest, parse
from gateway.results import SearchMemoriesResponse
from gateway.service import Gateway
from gateway.upstream import User


class GatewayRoute:
    """The route; an ``Extension`` of the API.

    Args:
        gateway: Answers.
        metrics: Counts.
        address_header: See ``GatewayConfig.address_header``.
    """

    def __init__(self, gateway: Gateway, metrics: GatewayMetrics, address_header: str | None) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._address_header = address_header
        self._log = GatewayLog()

    @property
    def section(self) -> Section:
        """Its part of the OpenAPI document."""
        return section()

    def add_to(self, app: FastAPI, api: Api) -> None:
        """Add it to an app."""

        async def search(request: Request, request_id: str) -> Response:
            started = time.perf_counter()
            asked: SearchMemoriesRequest | None = None
            user: User | None = None
            found: SearchMemoriesResponse | None = None
            outcome = "abandoned"
            try:
                asked = parse(await api.body(request))
                user = await self._gateway.authenticate(asked, self._address(request))
                async with api.limited(_caller(user, request_id)):
                    found = await self._gateway.search(user, asked, request_id)
                outcome = "degraded" if found.degraded else "ok"
                return json_response(found)
            except ClientDisconnect:
                raise
            except Exception as error:
                outcome = as_strata_error(error).code
                raise
            finally:
                seconds = time.perf_counter() - started
                self._log.ended(request_id, asked, user, found, outcome=outcome, seconds=seconds)
                self._metrics.ended(asked, found, outcome, seconds)

        app.add_route(PATH, api.admitted_endpoint(NAME, search), methods=["POST"])

    def _address(self, request: Request) -> str:
        if self._address_header and (given := request.headers.get(self._address_header)):
            return given.rpartition(",")[2].strip()
        return request.client.host if request.client else ""


def _caller(user: User, request_id: str) -> Caller:
    """Whose limits hold: those of the account, and of the user like those of an API key."""
    return Caller(RequestContext(user.account_id, user_space=user.space, request_id=request_id), f"user:{user.user_id}")
