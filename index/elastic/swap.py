"""Let another index version serve, as it is: what it lacks is told, and only accepted when that is wished for."""

import msgspec
from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.errors import StageFailed
from index.elastic.client import reason
from index.elastic.compare import differences
from index.elastic.config import WriteConfig
from index.elastic.patience import patiently
from index.elastic.turn import Turn
from index.elastic.versions import Versions


class Swapped(msgspec.Struct, frozen=True):
    """How a swap went.

    Args:
        done: Whether the version serves.
        missing: Records that it lacks, of those that the one it replaces has.
        outdated: Records that it has although they were replaced or removed.
    """

    done: bool
    missing: int = 0
    outdated: int = 0


async def swap(
    client: AsyncElasticsearch, versions: Versions, config: WriteConfig, number: int, *, force: bool = False
) -> Swapped:
    """Let a version serve.

    Writes are stopped while it is compared with the one that serves. Of the one that serves already, only the writes
    are let in again that a process which died has stopped.

    Args:
        client: To the cluster.
        versions: Those of the index.
        config: How patient it is.
        number: Of the version.
        force: Swap although the two differ.

    Raises:
        ConfigError: There is no such version, or another process is busy with the versions.
        StageFailed: The cluster failed.
    """
    try:
        await versions.prepare()
        turn = Turn(client, versions.ledger, config)
        async with turn.taken("swapping index versions"):
            version, held = await versions.get(number), await versions.serving_now()
            if held is None or held.number == number:
                await versions.swap(version)
                return Swapped(done=True)
            async with versions.closing(held):
                names = [held.name, version.name]
                await patiently(config, client.indices.refresh, index=names)
                missing = outdated = 0
                async for ours, theirs in differences(client, config, *names):
                    missing, outdated = missing + len(ours), outdated + len(theirs)
                done = force or not (missing or outdated)
                if done:
                    await turn.check()
                    await versions.replace(held, version)
            return Swapped(done, missing, outdated)
    except (ApiError, TransportError) as error:
        raise StageFailed(f"Elasticsearch: {reason(error)}.", remedy="Try again.", stage="index") from None
