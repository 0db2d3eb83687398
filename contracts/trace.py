"""How an answer came about: times, warnings, degradations, and on request the events of each stage."""

from typing import Any

import msgspec

# Warnings that are no errors, with their codes (§7).
TARGET_ABSENT = "RET-4041: target_uri does not exist; the restriction was ignored."
PLANNER_UNSURE = "RET-4221: the query fits no single context type; searched memory, skill and resource."

StageName = str
STAGES: tuple[StageName, ...] = (
    "planner",
    "embedder",
    "seed_search",
    "expander",
    "rechecker",
    "reranker",
    "assembler",
)


class Degradation(msgspec.Struct, frozen=True):
    """A stage that did less than it should (design decision 3). ``reason`` starts with an error code."""

    stage: StageName
    reason: str
    elapsed_ms: int


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a stage, for ``thinking_trace``; ``at_ms`` after the request began."""

    stage: StageName
    event: str
    at_ms: int = 0
    detail: dict[str, Any] = {}


class Trace(msgspec.Struct):
    """Times per stage in whole milliseconds, as the chain saw them (hop included); see §4.1.1 for the first five."""

    planner_ms: int = 0
    seed_ms: int = 0
    recheck_ms: int = 0
    hierarchical_ms: int = 0
    assemble_ms: int = 0
    embed_ms: int = 0
    rerank_ms: int = 0
    total_ms: int = 0
    warnings: list[str] = []
    event_count: int = 0


class ThinkingTrace(msgspec.Struct):
    """The events of each stage in order (C5).

    When a cap on their number or size was reached the later ones are missing: ``truncated`` says so, and a last event
    ``cut`` how many.
    """

    events: list[Event] = []
    truncated: bool = False


class ReadTrace(msgspec.Struct, frozen=True):
    """Times of a read, whole milliseconds."""

    read_ms: int = 0
    relations_ms: int = 0
