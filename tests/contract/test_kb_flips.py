"""While another process publishes and withdraws entities, no answer holds one that was withdrawn all along (K1)."""

import asyncio
import sys
import time
from pathlib import Path
from typing import NamedTuple

from corpora.knowledge_base.types import Entity
from database.engine import Database
from index.embedded.index import EmbeddedIndex
from tests.support.kb import ACME, base_over

QUERY = "what to wear at an evening party"
ENTITIES = [f"e{i}" for i in range(6)]
# Prints for how long each entity was surely withdrawn: from after one commit to before the next one begins. The clock
# is that of the whole machine.
FLIPPER = """
import asyncio, random, sys, time
from corpora.knowledge_base.store import Store
from database.config import DatabaseConfig
from database.engine import Database

async def main(url, rounds, *entities):
    database = await Database.open(url, DatabaseConfig(timeout_ms=30_000))
    store = Store(database)
    chance = random.Random(7)
    for _ in range(int(rounds)):
        chosen = chance.sample(entities, 2)
        await store.set_status("acme", chosen, "draft")
        since = time.monotonic()
        await asyncio.sleep(chance.uniform(0.005, 0.06))
        until = time.monotonic()
        await store.set_status("acme", chosen, "published")
        for entity in chosen:
            print(entity, since, until, flush=True)
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


class Answer(NamedTuple):
    """What a search found, and when it was under way."""

    since: float
    until: float
    entities: frozenset[str]


async def test_no_answer_holds_an_entity_that_was_withdrawn_for_the_whole_request(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    """K1, under load: the index lags all the time, and the worker writes meanwhile."""
    index = await EmbeddedIndex.open(tmp_path / "index", write=True)
    base = base_over(index, database)
    for name in ENTITIES:
        await base.add(Entity(name, "garment", "published"), QUERY)
    await base.worker.drain()
    flipper = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FLIPPER, database_url, "120", *ENTITIES, stdout=asyncio.subprocess.PIPE
    )
    answers: list[Answer] = []
    over = asyncio.Event()

    async def ask() -> None:
        while not over.is_set():
            since = time.monotonic()
            outcome = await base.kb.search(QUERY, ACME)
            answers.append(Answer(since, time.monotonic(), frozenset(each.entity_id for each in outcome.results)))

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    working = asyncio.create_task(base.worker.run())
    printed, _ = await flipper.communicate()
    over.set()
    base.worker.stop()
    await asyncio.gather(*asking, working)
    await index.close()

    assert flipper.returncode == 0
    withdrawn = [
        (name, float(since), float(until)) for name, since, until in map(str.split, printed.decode().splitlines())
    ]
    within = [
        (answer, name)
        for name, since, until in withdrawn
        for answer in answers
        if since <= answer.since and answer.until <= until
    ]
    assert len(withdrawn) == 240
    assert within, "no search was so short that it lay within a withdrawal"
    assert len({answer.entities for answer in answers}) > 1
    assert [(name, answer) for answer, name in within if name in answer.entities] == []
