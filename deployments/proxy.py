"""What Serve's HTTP proxy has of ours: errors in our own shape where no ingress answers, no headers that steer Serve.

Serve loads it into each proxy by the name in RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH (``ray.environment`` of the
settings).
"""

from http import HTTPStatus
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.errors import Overloaded, StageFailed, StageTimeout
from deployments.http_errors import REQUEST_ID, error_response

_HEADER = "x-request-id"
_INGRESS = "ingress"
# Paths of Serve itself.
_OWN = "/-/"
# Headers by which a caller could choose a replica, have more time than the settings give, or keep the work of a request
# going that it gave up. Serve takes a dash for an underscore.
_STEERING = ("serve_multiplexed_model_id", "x_session_id", "x_request_timeout_seconds", "x_request_disconnect_disabled")


def middlewares() -> list[Middleware]:
    """Called by Serve when a proxy starts."""
    return [Middleware(Edge)]


class Edge:
    """Around everything that the proxy does with a request.

    Args:
        app: The proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back unless that is an error of the proxy's own."""
        if scope["type"] != "http" or scope["path"].startswith(_OWN):
            await self._app(scope, receive, send)
            return
        _clean(scope)
        status, passed = 0, False

        async def answer(message: Message) -> None:
            nonlocal status, passed
            if message["type"] == "http.response.start":
                status = message["status"]
                passed = not _is_plain_error(message)
            if passed:
                await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception:
            if passed:
                raise
        if not passed:
            request_id = Headers(scope=scope).get(_HEADER, "")
            response = error_response(_error(status), request_id)
            response.headers[_HEADER] = request_id
            await response(scope, receive, send)


def _clean(scope: Scope) -> None:
    """Drop what steers Serve, and an id unfit for logs; the proxy then makes one."""
    headers = MutableHeaders(scope=scope)
    for name in {*headers}:
        if name.replace("-", "_").startswith(_STEERING):
            del headers[name]
    given = headers.getlist(_HEADER)
    if len(given) != 1 or not REQUEST_ID.fullmatch(given[0]):
        del headers[_HEADER]


def _is_plain_error(start: Any) -> bool:
    """Whether it is plain text, as all that Serve answers by itself; what we answer is not."""
    kind = Headers(raw=start.get("headers", [])).get("content-type", "")
    return start["status"] >= HTTPStatus.BAD_REQUEST and kind.startswith("text/plain")


def _error(status: int) -> Exception:
    match status:
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Overloaded("The service has no room for this request.", remedy="Retry in a moment.")
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return StageFailed("The service is not up.", remedy="Retry in a moment.", stage=_INGRESS)
        case HTTPStatus.REQUEST_TIMEOUT:
            return StageTimeout("The service did not answer in time.", stage=_INGRESS)
        case HTTPStatus.NOT_FOUND:
            return HTTPException(status)
    return StageFailed("The service was interrupted while it answered.", remedy="Send it again.", stage=_INGRESS)
