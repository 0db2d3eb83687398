"""What was measured: each way to run the same searches, beside the chain in one process."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

# The chain without Ray and HTTP, which the others are held against.
CHAIN = "in process"


class Burst(msgspec.Struct, frozen=True):
    """Requests that one contestant answered in one go.

    Args:
        ms: How long each took.
        seconds: How long all took.
        cpu_s: CPU of its processes meanwhile, by process.
        lacking: Answers that lacked something, or were none.
    """

    ms: Sequence[float]
    seconds: float
    cpu_s: Mapping[str, float]
    lacking: int = 0


class Figures(msgspec.Struct, frozen=True):
    """One contestant under so many clients.

    Args:
        name: Which.
        clients: Each sends its next request when it has the answer to the last.
        requests: Measured.
        p50_ms: Median of a request.
        p95_ms: 95th percentile.
        per_s: Requests a second.
        cpu_ms: CPU of its processes a request; the client's is not among it, except in process.
        cpu_ms_by_process: The same by deployment.
        overhead_ms: Median less that of the chain in process, with as many clients.
        ratio: Median as a multiple of it.
        lacking: Answers that lacked something, or were none.
    """

    name: str
    clients: int
    requests: int
    p50_ms: float
    p95_ms: float
    per_s: float
    cpu_ms: float
    cpu_ms_by_process: Mapping[str, float]
    overhead_ms: float
    ratio: float
    lacking: int


class Report(msgspec.Struct, frozen=True):
    """All of it.

    Args:
        queries: Different ones.
        records: In the index.
        figures: By number of clients and contestant.
        wire_bytes: Mean bytes of a stage's call and reply.
    """

    queries: int
    records: int
    figures: tuple[Figures, ...]
    wire_bytes: Mapping[str, tuple[int, int]]


def figures(name: str, clients: int, bursts: Sequence[Burst], chain: Sequence[Burst]) -> Figures:
    """The figures of a contestant.

    Args:
        name: Its name.
        clients: How many asked at once.
        bursts: What it did.
        chain: What the chain in process did in the same rounds.
    """
    ms = [each for burst in bursts for each in burst.ms]
    p50, p95 = np.percentile(ms, [50, 95])
    base = np.percentile([each for burst in chain for each in burst.ms], 50)
    processes = {process for burst in bursts for process in burst.cpu_s}
    cpu = {p: sum(burst.cpu_s.get(p, 0.0) for burst in bursts) * 1000 / len(ms) for p in processes}
    return Figures(
        name=name,
        clients=clients,
        requests=len(ms),
        p50_ms=_rounded(p50),
        p95_ms=_rounded(p95),
        per_s=_rounded(len(ms) / sum(burst.seconds for burst in bursts)),
        cpu_ms=_rounded(sum(cpu.values())),
        cpu_ms_by_process={p: _rounded(each) for p, each in sorted(cpu.items(), key=lambda item: -item[1])},
        overhead_ms=_rounded(p50 - base),
        ratio=_rounded(p50 / base),
        lacking=sum(burst.lacking for burst in bursts),
    )


def _rounded(value: float) -> float:
    return round(float(value), 2)
