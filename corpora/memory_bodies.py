"""What callers of the memory corpus send."""

from typing import Literal, get_args

from pydantic import Field

from contracts.requests import Strict
from corpora.rag.bodies import Identifier, Label, Moment, Text

MemoryType = Literal["constraint", "preference", "fact", "todo_hint"]
# A turn of a dialogue is a memory too, of a type that only dialogues make.
FoundType = Literal["constraint", "preference", "fact", "todo_hint", "conversation"]
Sensitivity = Literal["public", "internal", "private", "secret"]
SENSITIVITIES: tuple[Sensitivity, ...] = get_args(Sensitivity)
DIMENSIONS = ("user_id", "assistant_id", "conversation_id")


class Kept(Strict):
    """What an item and a dialogue share."""

    source_id: Identifier | None = Field(None, description="Replaces what was stored under it; made when not given.")
    sensitivity_level: Sensitivity | None = Field(None, description="Never shown to a caller cleared for less.")
    ttl_at: Moment | None = Field(None, description="When it stops showing; milliseconds since the epoch or ISO 8601.")
    tags: list[Label] = Field([], max_length=32)


class MemoryItem(Kept):
    """One thing to remember."""

    text: Text = Field(min_length=1)
    memory_type: MemoryType = "fact"
    confidence: float = Field(1.0, ge=0, le=1)
    source_event_id: Identifier | None = Field(None, description="The event it was learnt from.")
    created_at: Moment | None = Field(None, description="Milliseconds since the epoch or ISO 8601; now by default.")


class MemoryTurn(Strict):
    """One utterance."""

    text: Text
    speaker: Label = ""
    id: Label = ""
    time: Label | int = ""


class MemoryDialogue(Kept):
    """A session of a conversation."""

    session_id: Identifier
    turns: list[MemoryTurn] = Field(min_length=1, max_length=2000)
    date: Label | int = Field("", description="As people write it, or milliseconds since the epoch.")


class Dimensions(Strict):
    """What every ingest and retrieval must name (R6)."""

    user_id: Identifier = Field(description="Whose memories; they lie in the space user:<user_id>.")
    assistant_id: Identifier
    conversation_id: Identifier


class MemoryIngestBody(Dimensions):
    """What to remember. Of two with the same source the later stays."""

    items: list[MemoryItem] = Field([], max_length=1000)
    dialogues: list[MemoryDialogue] = Field([], max_length=100)


class MemoryOptions(Strict):
    """How to narrow a retrieval."""

    min_confidence: float | None = Field(None, ge=0, le=1, description="In steps of 0.01.")
    max_sensitivity: Sensitivity | None = Field(None, description="Can only lower what the caller's role may see.")
    memory_types: list[FoundType] = Field([], max_length=5, description="None means all.")


class MemoryRetrieveBody(Dimensions):
    """Where to look."""

    options: MemoryOptions = MemoryOptions()
