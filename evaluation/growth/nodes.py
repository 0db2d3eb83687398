"""What the nodes of an Elasticsearch cluster use."""

from contextlib import suppress

import psutil
from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.errors import StageFailed
from evaluation.growth.searches import NodeUsage
from index.elastic.client import reason

_MB = 1e6
# Seconds between the starts that the kernel and the JVM tell of the same process.
_SAME_START_S = 30


class ElasticWatch:
    """A ``Watch`` over a cluster.

    Args:
        client: Of the cluster.
    """

    def __init__(self, client: AsyncElasticsearch) -> None:
        self._client = client
        self._processes: dict[str, psutil.Process] | None = None

    async def usage(self) -> tuple[NodeUsage, ...]:
        """See ``Watch``.

        Raises:
            StageFailed: The cluster does not tell.
        """
        try:
            if self._processes is None:
                self._processes = await self._here()
            stats = (await self._client.nodes.stats(metric=["process", "jvm"]))["nodes"]
        except (ApiError, TransportError) as error:
            raise StageFailed(
                f"Elasticsearch does not tell what its nodes use: {reason(error)}.",
                remedy="Give the user or key the cluster privilege monitor.",
                stage="eval",
            ) from None
        return tuple(
            NodeUsage(
                name=node["name"],
                cpu_s=node["process"]["cpu"]["total_in_millis"] / 1000,
                heap_mb=round(node["jvm"]["mem"]["heap_used_in_bytes"] / _MB, 1),
                rss_mb=_rss_mb(self._processes.get(key)),
            )
            for key, node in sorted(stats.items())
        )

    async def _here(self) -> dict[str, psutil.Process]:
        """The nodes whose processes are on this machine, by id."""
        found = {}
        for key, node in (await self._client.nodes.info(metric="jvm"))["nodes"].items():
            with suppress(psutil.Error):
                process = psutil.Process(node["jvm"]["pid"])
                # On another machine a process of the same number would have started at another time.
                if abs(process.create_time() - node["jvm"]["start_time_in_millis"] / 1000) < _SAME_START_S:
                    found[key] = process
        return found


def _rss_mb(process: psutil.Process | None) -> float | None:
    if process is None:
        return None
    with suppress(psutil.Error):
        return round(float(process.memory_info().rss) / _MB, 1)
    return None
