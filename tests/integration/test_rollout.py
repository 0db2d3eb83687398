"""Switches kept in SQL (R8), on both dialects."""

import asyncio

from corpora.rag.rollout import Rollout, Switches
from corpora.rag.rollout_config import RolloutConfig, SwitchConfig
from database.config import DatabaseConfig
from database.engine import Database
from tests.support.postgres import Postgres
from tests.support.waiting import until

OTHERWISE = SwitchConfig(percent=70)


async def test_a_switch_is_set_in_parts_and_keeps_the_others(database: Database) -> None:
    switches = Switches(database)
    assert await switches.all() == {}
    state = await switches.set("web.rag", OTHERWISE, shadow=True)
    assert (state.enabled, state.percent, state.shadow) == (True, 70, True)
    await switches.set("web.rag", OTHERWISE, enabled=False)
    state = await switches.set("web.rag", SwitchConfig(), percent=25)
    assert (state.enabled, state.percent, state.shadow) == (False, 25, True)
    assert state.updated_at > 0
    assert await switches.all() == {"web.rag": state}


async def test_a_switch_that_is_reset_follows_the_settings_again(database: Database) -> None:
    switches = Switches(database)
    await switches.set("web.rag", OTHERWISE, enabled=False)
    kept = await switches.set("memory.rag", OTHERWISE, percent=5)
    await switches.reset("web.rag")
    await switches.reset("never.rag")
    assert await switches.all() == {"memory.rag": kept}


async def test_two_that_set_parts_of_a_new_switch_at_once_both_hold(database: Database) -> None:
    switches = Switches(database)
    await asyncio.gather(
        switches.set("web.rag", OTHERWISE, percent=25), switches.set("web.rag", OTHERWISE, shadow=True)
    )
    state = (await switches.all())["web.rag"]
    assert (state.percent, state.shadow) == (25, True)


async def test_a_running_process_follows_what_another_sets(database: Database, database_url: str) -> None:
    live = Rollout(database, RolloutConfig(refresh_ms=10))
    await live.start()
    other = await Database.open(database_url, DatabaseConfig())
    await Switches(other).set("web.rag", OTHERWISE, enabled=False)

    async def followed() -> bool:
        return (await live.decide("web", "alice")).path == "keyword"

    await until(followed)
    await live.close()
    await other.close()


async def test_decisions_go_on_while_postgresql_is_stopped_and_follow_it_when_it_is_back(
    own_postgres: Postgres,
) -> None:
    database = await Database.open(own_postgres.url, DatabaseConfig(migrate_at_start=True))
    switches = Switches(database)
    await switches.set("web.rag", OTHERWISE, enabled=False)
    live = Rollout(database, RolloutConfig(refresh_ms=10))
    await live.start()
    await asyncio.to_thread(own_postgres.stop)
    for _ in range(100):
        assert (await live.decide("web", "alice")).path == "keyword"
        await asyncio.sleep(0.001)
    await asyncio.to_thread(own_postgres.start)
    await switches.set("web.rag", OTHERWISE, enabled=True, percent=100)

    async def followed() -> bool:
        return (await live.decide("web", "alice")).path == "rag"

    await until(followed)
    await live.close()
    await database.close()
