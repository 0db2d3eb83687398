"""API keys for tests."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from deployments.identity.keys import ApiKey, KeyStore
    from deployments.settings import Settings

Result = TypeVar("Result")


@pytest.fixture
async def key_store(tmp_path: Path) -> "AsyncIterator[KeyStore]":
    """In a data folder that is empty so far."""
    from deployments.identity.opening import local_keys
    from deployments.settings import parse

    async with local_keys(parse({"data_dir": str(tmp_path / "data")})) as keys:
        yield keys


class Keys:
    """The keys of some settings; each call runs on an event loop in a thread of its own, so that any test may make it.

    Args:
        settings: Say where the keys are.
    """

    def __init__(self, settings: "Settings") -> None:
        from deployments.identity.opening import local_keys

        self._thread = ThreadPoolExecutor(1, thread_name_prefix="keys")
        self._runner = asyncio.Runner()
        self._opened = local_keys(settings)
        self._keys: KeyStore = self._run(self._opened.__aenter__())

    def create(self, account_id: str, **identity: Any) -> "tuple[str, ApiKey]":
        """See ``KeyStore``."""
        return self._run(self._keys.create(account_id, **identity))

    def rotate(self, key_id: str, overlap_ms: int) -> "tuple[str, ApiKey]":
        """See ``KeyStore``."""
        return self._run(self._keys.rotate(key_id, overlap_ms))

    def revoke(self, key_id: str) -> bool:
        """See ``KeyStore``."""
        return self._run(self._keys.revoke(key_id))

    def list(self) -> "list[ApiKey]":
        """See ``KeyStore``."""
        return self._run(self._keys.list())

    def authenticate(self, token: str) -> "ApiKey":
        """See ``KeyStore``."""
        return self._run(self._keys.authenticate(token))

    def close(self) -> None:
        """Close the database."""
        self._run(self._opened.__aexit__(None, None, None))
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.submit(self._runner.run, work).result()
