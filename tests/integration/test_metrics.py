"""Metrics as Prometheus scrapes them (D2, C41)."""

import httpx

from contracts.trace import STAGES
from deployments.metrics import BUCKETS
from deployments.monitoring.catalog import catalog
from tests.integration.conftest import Cluster, Scrape, eventually
from tests.support.memories import uri


async def post(client: httpx.AsyncClient, path: str, **body: object) -> int:
    return (await client.post(f"/v1/{path}", json=body)).status_code


async def test_every_stage_has_latency_in_and_out(cluster: Cluster, alice: httpx.AsyncClient) -> None:
    """D2: histograms and counters a stage; the budgets of C40 are among the buckets."""
    assert await post(alice, "search_memory", query="backup of the index") == 200
    metrics = ("stage_ms_count", "stage_work_ms_count", "stage_in_count_total", "stage_out_count_total")

    def complete() -> Scrape | None:
        scrape = cluster.scrape()
        return scrape if all(scrape.total(m, stage=s) > 0 for m in metrics for s in STAGES) else None

    scrape = await eventually(complete)
    for stage in STAGES:
        limits = {sample.labels["le"] for sample in scrape.find("stage_ms_bucket", stage=stage)}
        assert limits == {*map(str, BUCKETS), "+Inf"}
    assert {30, 40, 50, 100, 120, 300} <= set(BUCKETS)


async def test_searches_are_counted_by_outcome(cluster: Cluster, alice: httpx.AsyncClient) -> None:
    """C41: qps, p95, threshold filtered, seed hits, recheck input, pass and drop."""
    before = cluster.scrape()
    assert await post(alice, "search_memory", query="noodles", top_k=99) == 400
    hints = {"exclude_terms": ["noodles"], "context_types": ["memory"]}
    assert await post(alice, "search_memory", query="noodles coffee", planner_hints=hints) == 200
    assert await post(alice, "search_memory", query="noodles", score_threshold=0.99) == 200

    def counted() -> bool:
        now = cluster.scrape()

        def grown(name: str, **labels: str) -> float:
            return now.total(name, **labels) - before.total(name, **labels)

        return (
            grown("search_memory_total", outcome="RET-4002") >= 1
            and grown("search_memory_total", outcome="ok") >= 2
            and grown("search_memory_ms_count") >= 3
            and grown("search_memory_threshold_filtered_count_total") > 0
            and grown("seed_hit_count_total") > 0
            and grown("recheck_drop_count_total", reason="exclude_terms") > 0
            and grown("recheck_input_count_total") > 0
            and grown("recheck_pass_count_total") > 0
        )

    await eventually(counted)


async def test_a_search_reads_no_l1_and_no_l2(cluster: Cluster, alice: httpx.AsyncClient) -> None:
    """C1, C11, acceptance of seed 1 §10: the reader, which alone has the content store, is not called."""

    def reads(scrape: Scrape) -> tuple[float, float, float]:
        return (
            scrape.total("stage_work_ms_count", stage="reader"),
            scrape.total("read_l1_count_total"),
            scrape.total("read_l2_count_total"),
        )

    before = cluster.scrape()
    for _ in range(3):
        assert await post(alice, "search_memory", query="run a command with a timeout") == 200

    def searched() -> Scrape | None:
        scrape = cluster.scrape()
        counted = scrape.total("search_memory_total") - before.total("search_memory_total")
        return scrape if counted >= 3 else None

    assert reads(await eventually(searched)) == reads(before)
    for level in ("L1", "L2"):
        assert await post(alice, "read_memory", uri=uri("shared", "python/run"), level=level) == 200
    calls, l1, l2 = reads(before)
    await eventually(lambda: reads(cluster.scrape()) == (calls + 2, l1 + 1, l2 + 1))


async def test_labels_are_bounded(cluster: Cluster, alice: httpx.AsyncClient) -> None:
    """No account, no URI and no query in any label of ours."""
    await post(alice, "search_memory", query="noodles")
    scrape = cluster.scrape()
    ours = [sample for sample in scrape.samples if sample.name.startswith("ray_retrieval_")]
    exporter = {"WorkerId", "NodeAddress", "SessionName", "Version", "Component", "JobId", "NodeId"}
    names = {name for sample in ours for name in sample.labels if not name.startswith("otel_")} - exporter
    own = {tag for part in catalog().values() for metric in part for tag in metric.tags}
    assert names <= own | {"le", "deployment", "replica", "application"}
    values = {value for sample in ours for value in sample.labels.values()}
    assert not any(word in value for value in values for word in ("acme", "alice", "noodles", "strata://"))
