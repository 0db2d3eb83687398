"""The ingress's own door: HTTP straight to it, beside Serve's proxy.

The proxy hands every request on over gRPC, and the ingress fetches the body from it by one more call; that takes longer
than several stages do. Here there is nothing in between. What Serve does for a request there is done here: work that
nobody waits for any more is cancelled, and a replica that stops answers first what it has begun.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn
from ray.serve._private.http_util import RequestIdMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contracts.errors import ConfigError
from deployments.proxy import Edge

# How long requests under way get when the door closes.
_GRACE_S = 10
# As Serve's proxy keeps idle connections.
_KEEP_ALIVE_S = 90


class Door:
    """An HTTP server in the event loop that it is constructed in.

    Ingresses on one machine may listen at the same port: the kernel spreads connections over them, and one that takes
    the place of another need not wait for it.

    Args:
        app: What answers.
        host: Address to listen on.
        port: The same.

    Raises:
        ConfigError: Somebody else listens there.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, reuse_port=True)
        except OSError as error:
            raise ConfigError(
                f"{host}:{port} can't be listened on: {error.strerror}.",
                field="server.direct_port",
                remedy="Take another port.",
            ) from None
        self._attended = Attended(app)
        config = uvicorn.Config(
            Edge(RequestIdMiddleware(self._attended)),
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listener]))

    @property
    def under_way(self) -> int:
        """Requests that are not answered yet."""
        return self._attended.under_way

    async def close(self) -> None:
        """Take no more requests, and wait until those under way are answered."""
        self._server.should_exit = True
        await self._serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Those of the process are Serve's."""
        yield


class Attended:
    """Cancels the work on a request when its client hangs up.

    Args:
        app: What works.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.under_way = 0
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless nobody waits for it any more."""
        work = cast("asyncio.Task[None]", asyncio.current_task())
        gone = asyncio.Event()
        watching: asyncio.Task[None] | None = None
        answered = abandoned = False

        async def answer(message: Message) -> None:
            nonlocal answered
            answered = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        async def take() -> Message:
            """The body first; when it is complete, nothing but the end of the connection can follow."""
            nonlocal watching
            if watching:
                await gone.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                watching = asyncio.create_task(watch())
            return message

        async def watch() -> None:
            nonlocal abandoned
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            if not answered:
                abandoned = work.cancel()

        self.under_way += 1
        try:
            await self._app(scope, take, answer)
        except asyncio.CancelledError:
            if not abandoned:
                raise
        finally:
            self.under_way -= 1
            if watching:
                watching.cancel()
            if abandoned:
                work.uncancel()
