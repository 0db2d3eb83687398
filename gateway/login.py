"""Authentication by ``user_id`` and ``user_key``: Argon2id hashes, the same work for every refusal, guesses held back.

A refusal costs one hash whether the key is wrong or the user unknown, and reads the same, so that neither time nor text
tells who is a user. A key that was right is remembered for a while as a keyed digest, so that most requests of a busy
user need no hash; it is bound to the stored hash, so that a changed key or a removed user ends it at once.

Wrong keys are counted per user and address, per address, and per user over all addresses. The last limit does not shut
out an address from which the user has logged in lately: else anybody could lock a user out.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

import argon2

from contracts.errors import RateLimited, Unauthenticated
from gateway.config import LoginConfig
from gateway.store import GatewayStore, UserRow
from gateway.throttle import Throttle
from gateway.upstream import User


class Hasher:
    """Argon2id, a few at once, off the event loop.

    Args:
        config: How dear a hash is, and how many at once.
    """

    def __init__(self, config: LoginConfig) -> None:
        self._argon = argon2.PasswordHasher(
            time_cost=config.time_cost, memory_cost=config.memory_kib, parallelism=1, type=argon2.Type.ID
        )
        self._room = asyncio.Semaphore(config.hashes_at_once)
        # Of a key that nobody has: what unknown users are checked against.
        self.nobody = self.hashed(secrets.token_urlsafe())

    def hashed(self, key: str) -> str:
        """The hash to store for a key; blocks for some hundredths of a second."""
        return self._argon.hash(key)

    async def fits(self, key_hash: str, key: str) -> bool:
        """Whether a key has this hash."""
        async with self._room:
            return await asyncio.to_thread(self._verify, key_hash, key)

    def _verify(self, key_hash: str, key: str) -> bool:
        try:
            return self._argon.verify(key_hash, key)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False


class Login:
    """Finds out who asks. Construct it in the event loop that uses it.

    Args:
        store: The users.
        config: How hard it is to guess a key.
        refused: Told why somebody was refused, in a word.
        hasher: By default one of the config.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        store: GatewayStore,
        config: LoginConfig,
        refused: Callable[[str], None] = lambda reason: None,
        hasher: Hasher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._refused = refused
        self._hasher = hasher or Hasher(config)
        self._clock = clock
        self._checks: dict[bytes, asyncio.Task[bool]] = {}
        self._right = _Remembered(config.remember_s, config.remembered, clock)
        self._known = _Remembered(config.window_s, config.remembered, clock)
        self._pairs, self._addresses, self._users = (
            Throttle(most, config.window_s, config.remembered, clock)
            for most in (config.failures_per_user, config.failures_per_address, config.failures_anywhere)
        )

    async def authenticate(self, user_id: str, user_key: str, address: str) -> User:
        """The user that has this key.

        Args:
            user_id: As the client wrote it.
            user_key: As the client wrote it.
            address: Where the request came from.

        Raises:
            Unauthenticated: Unknown user or wrong key; which of them is not told.
            RateLimited: Too many wrong keys lately; nothing was checked.
            DatabaseDown: The users can't be asked.
        """
        row = await self._store.user(user_id)
        key_hash = row.key_hash if row else self._hasher.nobody
        if row and self._right.has(user_id, user_key, key_hash):
            return _user(row)
        if await self._check(user_id, user_key, key_hash, address) and row:
            self._right.add(user_id, user_key, key_hash)
            return _user(row)
        self._refused("key_wrong")
        raise Unauthenticated("user_id or user_key is not valid.", field="user_key")

    async def _check(self, user_id: str, user_key: str, key_hash: str, address: str) -> bool:
        """Whether the key fits; requests that ask the same at the same time share one answer, and count once."""
        question = self._right.digest(user_id, user_key, key_hash, address)
        check = self._checks.get(question)
        if check is None:
            # Counted before it is checked: else as many guesses as wished could be under way at once.
            self._count(user_id, address)
            check = self._checks[question] = asyncio.create_task(self._fits(user_id, user_key, key_hash, address))
            check.add_done_callback(lambda _: self._checks.pop(question))
        return await asyncio.shield(check)

    async def _fits(self, user_id: str, user_key: str, key_hash: str, address: str) -> bool:
        fits = await self._hasher.fits(key_hash, user_key)
        if fits:
            self._known.add(address, user_id)
            self._pairs.forget(_pair(user_id, address))
            self._addresses.undo(address)
            self._users.undo(user_id)
        return fits

    def _count(self, user_id: str, address: str) -> None:
        pair = _pair(user_id, address)
        waits = [self._pairs.wait(pair), self._addresses.wait(address)]
        if not self._known.has(address, user_id):
            waits.append(self._users.wait(user_id))
        if wait := max(waits):
            self._refused("throttled")
            raise RateLimited(
                "There were too many wrong keys.",
                field="user_key",
                remedy="Wait, then send the right one.",
                retry_after=max(1.0, wait),
            )
        self._pairs.fail(pair)
        self._addresses.fail(address)
        self._users.fail(user_id)


class _Remembered:
    """Facts that hold for a while, as digests under a key of this process, in bounded memory."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, *parts: str) -> None:
        digest = self.digest(*parts)
        self._until[digest] = self._clock() + self._seconds
        self._until.move_to_end(digest)
        if len(self._until) > self._most:
            self._until.popitem(last=False)

    def has(self, *parts: str) -> bool:
        return self._until.get(self.digest(*parts), 0.0) > self._clock()

    def digest(self, *parts: str) -> bytes:
        # Lengths keep the parts apart.
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)


def _pair(user_id: str, address: str) -> str:
    return f"{address} {user_id}"


def _user(row: UserRow) -> User:
    return User(row.user_id, row.account_id, row.space)
