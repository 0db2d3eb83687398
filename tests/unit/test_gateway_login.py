"""Login: the same work for every refusal, guesses held back, nobody locked out by others."""

import asyncio
from typing import Any

import pytest

from contracts.errors import RateLimited, Unauthenticated
from gateway.config import LoginConfig
from gateway.login import Hasher, Login
from gateway.store import UserRow
from gateway.throttle import Throttle

CONFIG = LoginConfig(
    time_cost=1, memory_kib=1024, failures_per_user=3, failures_per_address=6, failures_anywhere=5, window_s=100
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class CountingHasher(Hasher):
    """The real one, counted."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.checked: list[str] = []

    async def fits(self, key_hash: str, key: str) -> bool:
        self.checked.append(key_hash)
        return await super().fits(key_hash, key)


class FakeUsers:
    """A store with one user."""

    def __init__(self, key_hash: str) -> None:
        self.key_hash: str | None = key_hash

    async def user(self, user_id: str) -> UserRow | None:
        known = user_id == "alice" and self.key_hash
        return UserRow("alice", self.key_hash or "", "acme", "memory.alice") if known else None


class World:
    """A login, and what it stands on."""

    def __init__(self) -> None:
        self.clock, self.hasher, self.refused = Clock(), CountingHasher(), list[str]()
        self.users = FakeUsers(self.hasher.hashed("right"))
        store: Any = self.users
        self.login = Login(store, CONFIG, self.refused.append, self.hasher, self.clock)

    async def attempt(self, user: str = "alice", key: str = "right", address: str = "10.0.0.1") -> str:
        try:
            return (await self.login.authenticate(user, key, address)).user_id
        except (Unauthenticated, RateLimited) as error:
            return error.code


@pytest.fixture
async def world() -> World:
    return World()


async def test_the_right_key_is_let_in_and_hashed_once_a_while(world: World) -> None:
    assert [await world.attempt() for _ in range(3)] == ["alice"] * 3
    assert len(world.hasher.checked) == 1
    world.clock.now += CONFIG.remember_s + 1
    assert await world.attempt() == "alice"
    assert len(world.hasher.checked) == 2


async def test_a_wrong_key_and_an_unknown_user_cost_the_same_and_read_the_same(world: World) -> None:
    """One hash of the same cost each, so that neither time nor text tells who is a user."""
    errors = []
    for user in ("alice", "nobody"):
        with pytest.raises(Unauthenticated) as refusal:
            await world.login.authenticate(user, "wrong", "10.0.0.1")
        errors.append(refusal.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0].field == errors[1].field
    assert len(world.hasher.checked) == 2
    costs = {key_hash.rsplit("$", 2)[0] for key_hash in world.hasher.checked}
    assert costs == {"$argon2id$v=19$m=1024,t=1,p=1"}
    assert world.refused == ["key_wrong", "key_wrong"]


async def test_a_remembered_key_ends_with_the_stored_hash(world: World) -> None:
    await world.attempt()
    world.users.key_hash = world.hasher.hashed("other")
    assert [await world.attempt(), await world.attempt(key="other")] == ["RET-4011", "alice"]
    world.users.key_hash = None
    assert await world.attempt(key="other") == "RET-4011"


async def test_wrong_keys_are_held_back_before_they_are_hashed(world: World) -> None:
    """Whether the user exists or not."""
    for user in ("alice", "nobody"):
        answers = [await world.attempt(user, f"guess {n}", f"of {user}") for n in range(4)]
        assert answers == ["RET-4011"] * 3 + ["RET-4292"]
    assert len(world.hasher.checked) == 6
    with pytest.raises(RateLimited) as refusal:
        await world.login.authenticate("alice", "right", "of alice")
    assert refusal.value.retry_after == CONFIG.window_s
    world.clock.now += CONFIG.window_s
    assert await world.attempt(address="of alice") == "alice"


async def test_an_address_is_held_back_over_all_users(world: World) -> None:
    assert [await world.attempt(f"user {n}", "guess") for n in range(7)] == ["RET-4011"] * 6 + ["RET-4292"]
    assert await world.attempt(address="10.0.0.2") == "alice"


async def test_others_can_not_lock_a_user_out_of_an_address_it_knows(world: World) -> None:
    assert await world.attempt(address="home") == "alice"
    assert {await world.attempt(key="guess", address=f"bot {n}") for n in range(5)} == {"RET-4011"}
    assert await world.attempt(key="guess", address="bot 9") == "RET-4292"
    world.clock.now += CONFIG.remember_s + 1
    assert await world.attempt(address="home") == "alice"


async def test_many_guesses_at_once_are_no_way_around(world: World) -> None:
    answers = await asyncio.gather(*(world.attempt(key=f"guess {n}") for n in range(20)))
    assert sorted(answers) == ["RET-4011"] * 3 + ["RET-4292"] * 17
    assert len(world.hasher.checked) == 3


async def test_many_requests_with_the_right_key_at_once_share_one_hash(world: World) -> None:
    assert set(await asyncio.gather(*(world.attempt() for _ in range(20)))) == {"alice"}
    assert len(world.hasher.checked) == 1


async def test_a_request_that_is_given_up_takes_no_other_with_it(world: World) -> None:
    first = asyncio.create_task(world.attempt())
    second = asyncio.create_task(world.attempt())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "alice"


async def test_a_stored_hash_that_is_none_lets_nobody_in(world: World) -> None:
    world.users.key_hash = "plain"
    assert await world.attempt(key="plain") == "RET-4011"


def test_a_throttle_forgets_the_oldest_names_beyond_its_room() -> None:
    clock = Clock()
    throttle = Throttle(1, 10, 2, clock)
    for name in ("a", "b", "c"):
        throttle.fail(name)
    assert [throttle.wait(name) for name in ("a", "b", "c")] == [0, 10, 10]
    clock.now += 4
    assert throttle.wait("c") == 6
    throttle.undo("c")
    throttle.forget("b")
    assert [throttle.wait(name) for name in ("b", "c")] == [0, 0]
