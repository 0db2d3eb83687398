"""What can be set about the knowledge base (K8)."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from contracts.filters import Contains, Filter, In, Not
from models.catalog import CATALOG
from models.config import Device, EmbedderModelConfig
from models.deterministic import NAME as DETERMINISTIC

AttrKind = Literal["keywords", "number", "boolean", "text"]
Operator = Literal["has", "has_all", "lacks"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z][a-zA-Z0-9_]{0,63}$")]
MAX_TOP_K = 200


class Weights(BaseModel):
    """Weights of the final score (K2); they must sum to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vector: float = Field(0.45, ge=0, le=1, description="Likeness in meaning.")
    keyword: float = Field(0.2, ge=0, le=1, description="Words in common.")
    rule: float = Field(0.25, ge=0, le=1, description="What the caller's rules say (rule_boost).")
    freshness: float = Field(0.1, ge=0, le=1, description="How lately the entity changed.")

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.vector + self.keyword + self.rule + self.freshness
        if abs(total - 1) > 1e-6:  # noqa: PLR2004 -- rounding of decimal weights
            raise ValueError(f"the weights add up to {total:g}, not to 1")
        return self


class HardFilter(BaseModel):
    """A condition that no result ever fails, when a search gives a value for it (K1)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="What searches call it.")
    field: str = Field(pattern=r"^attrs\.", description="The attribute, attrs.NAME; one declared as keywords.")
    operator: Operator = Field(
        description="has: one of the values given is among the attribute's; has_all: all of them are; lacks: none is. "
        "An entity without the attribute fails has and has_all, and passes lacks."
    )

    def condition(self, values: tuple[str, ...]) -> Filter:
        """What an entity must satisfy for these values, one at least."""
        match self.operator:
            case "has":
                return In(self.field, values)
            case "has_all":
                return Contains(self.field, values)
            case "lacks":
                return Not(In(self.field, values))


class OutboxConfig(BaseModel):
    """How the index is kept up with the database."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: int = Field(64, ge=1, le=1000, description="Entities a round. More: fewer commits, more to redo.")
    embed_texts: int = Field(256, ge=1, description="Texts an embedder call.")
    poll_s: float = Field(0.5, gt=0, description="Pause between two looks at the outbox: what a change waits at most.")
    lease_s: float = Field(
        120, gt=0, description="After that long the work of a process that died is taken over. Longer than a round."
    )
    max_backoff_s: float = Field(300, gt=0, description="Longest pause before an entity that failed is tried again.")


class KbEmbedderConfig(EmbedderModelConfig):
    """The knowledge base's own model, as its chunks lie in an index of their own (K3, K8)."""

    name: str = Field(
        DETERMINISTIC,
        min_length=1,
        description="A name of the catalog, or owner/name of any Hugging Face encoder. deterministic-v1 hashes texts: "
        "no model, no meaning, 1024 dimensions.",
    )
    device: Device = Field("cpu", description="auto takes CUDA when it is there. Only for torch.")


class KnowledgeBaseConfig(BaseModel):
    """The knowledge base."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedder: KbEmbedderConfig = KbEmbedderConfig()
    attrs: dict[Name, AttrKind] = Field(
        {"occasions": "keywords", "avoid_body_shapes": "keywords"},
        description="The attributes that entities may have. Hard filters need keywords: lists of strings.",
    )
    undeclared_attrs: Literal["refuse", "keep"] = Field(
        "refuse",
        description="What is done with other attributes. refuse catches misspelt ones, which hard filters would miss.",
    )
    hard_filters: tuple[HardFilter, ...] = Field(
        (
            HardFilter(name="occasion", field="attrs.occasions", operator="has"),
            HardFilter(name="body_shape", field="attrs.avoid_body_shapes", operator="lacks"),
        ),
        description="Besides the status and the entity types, which always hold. More of them cost next to nothing.",
    )
    top_k: int = Field(50, ge=1, le=MAX_TOP_K, description="Results of a search that names no number.")
    candidates: int = Field(
        100, ge=1, le=1000, description="Candidates from each recall, at least top_k. More find more and cost time."
    )
    deeper: int = Field(4, ge=1, le=10, description="Factor on the candidates when too few pass; 1 never looks again.")
    min_vector: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Least cosine of a candidate that has no word of the query. At 0 the nearest chunk always counts, "
        "be it ever so far; raised to what the model gives related texts (0.3 for all-MiniLM-L6-v2), a question that "
        "nothing answers becomes a gap.",
    )
    weights: Weights = Weights()
    freshness_half_life_days: float = Field(
        90, gt=0, le=36_500, description="Age at which freshness is one half. Shorter favours what changed lately."
    )
    timeout_ms: int = Field(2000, ge=1, description="Whole search; a caller may ask for less, never for more.")
    embed_ms: int = Field(500, ge=1, description="Longest wait for the query's vector; then words alone are searched.")
    recall_ms: int = Field(1000, ge=1, description="Longest wait for the index; then there are no results.")
    gap_similarity: float = Field(
        0.85, ge=0, le=1, description="Cosine from which two gaps count as the same. Lower: fewer, larger groups."
    )
    outbox: OutboxConfig = OutboxConfig()

    @field_validator("embedder")
    @classmethod
    def _known_model(cls, embedder: KbEmbedderConfig) -> KbEmbedderConfig:
        name, known = embedder.name, CATALOG.get(embedder.name)
        if not known and name != DETERMINISTIC and embedder.path is None and "/" not in name:
            models = ", ".join([DETERMINISTIC, *CATALOG])
            raise ValueError(f"there is no model {name!r}; take one of {models}, or owner/name of a hub")
        if known and embedder.dimensions not in {None, known.dimensions}:
            raise ValueError(f"{name} makes vectors of {known.dimensions} dimensions, not {embedder.dimensions}")
        return embedder

    @model_validator(mode="after")
    def _filters_fit(self) -> Self:
        names = [each.name for each in self.hard_filters]
        if len(set(names)) < len(names):
            raise ValueError("two hard_filters have the same name")
        for each in self.hard_filters:
            if self.attrs.get(each.field.removeprefix("attrs.")) != "keywords":
                raise ValueError(f"hard_filters names {each.field}, which attrs does not declare as keywords")
        return self

    @property
    def keyword_attrs(self) -> list[str]:
        """The attributes that can be filtered by."""
        return [name for name, kind in self.attrs.items() if kind == "keywords"]

    def filter_named(self, name: str) -> HardFilter | None:
        """The hard filter of a name."""
        return next((each for each in self.hard_filters if each.name == name), None)
