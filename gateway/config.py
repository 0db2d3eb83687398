"""Settings of the memory gateway."""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _is_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.password:
        raise ValueError("it must be a URL with http or https, without user and password")
    return url.rstrip("/")


class HttpUpstreamConfig(_Strict):
    """An upstream memory service that speaks EverOS's search API."""

    base_url: str | None = Field(None, description="For instance http://everos:8000; needed for upstream http.")
    path: str = Field("/api/v2/memory/search", pattern=r"^/[!-~]*$", description="Where it takes searches.")
    connect_timeout_ms: int = Field(1_000, ge=1, description="Longest wait for a connection.")
    read_timeout_ms: int = Field(
        10_000, ge=1, description="Longest wait for the next bytes of an answer; timeout_ms bounds the whole."
    )
    max_connections: int = Field(64, ge=1, description="Connections kept to it; further searches wait for one.")
    max_answer_bytes: int = Field(8 * 2**20, ge=1024, description="Longer answers are refused; bounds the memory.")

    _url = field_validator("base_url")(_is_url)


class LanguageModelConfig(_Strict):
    """A language model behind an OpenAI-compatible endpoint, for searches of the graph; its key is a secret."""

    base_url: str | None = Field(
        None, description="For instance http://vllm:8000/v1; null does without: rules plan, and nothing is reranked."
    )
    model: str = Field("", description="The model's name there; needed with base_url.")
    connect_timeout_ms: int = Field(500, ge=1, description="Longest wait for a connection.")
    timeout_ms: int = Field(3_000, ge=1, description="Longest wait for one answer; then it is done without.")
    max_answer_bytes: int = Field(256 * 1024, ge=1024, description="Longer answers are refused.")
    max_tokens: int = Field(1_024, ge=64, description="Tokens it may write a call.")
    json_mode: bool = Field(True, description="Ask for JSON by response_format; off for servers that do not know it.")

    _url = field_validator("base_url")(_is_url)

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.base_url and not self.model:
            raise ValueError("base_url needs a model")
        return self


class RerankConfig(_Strict):
    """How a language model orders results (enable_llm_rerank)."""

    top_n: int = Field(20, ge=2, le=100, description="Best results it sees; its time grows with them.")
    text_chars: int = Field(600, ge=50, description="Characters of a result it sees. More is judged better, slower.")


class AgenticConfig(_Strict):
    """How far method agentic goes."""

    rounds: int = Field(2, ge=1, le=5, description="Times it searches; the first is the plan's. More finds more.")
    queries: int = Field(3, ge=1, le=8, description="Queries a round, searched side by side.")
    look_at: int = Field(8, ge=1, le=50, description="Best results it looks at between two rounds.")
    text_chars: int = Field(400, ge=50, description="Characters of each.")
    reserve_ms: int = Field(500, ge=0, description="No further round begins when less time than this is left.")


class GraphUpstreamConfig(_Strict):
    """Searches of this product's own graph."""

    max_top_k: int = Field(
        100, ge=1, le=100, description="Results a memory type for top_k -1; what a larger top_k is cut to."
    )
    candidates: int = Field(
        3, ge=1, le=10, description="Candidates recalled per result wanted; more find more behind chunks of one source."
    )
    rerank: RerankConfig = RerankConfig()
    agentic: AgenticConfig = AgenticConfig()


class LoginConfig(_Strict):
    """How hard it is to guess a user's key."""

    time_cost: int = Field(2, ge=1, le=16, description="Passes of Argon2id for new keys.")
    memory_kib: int = Field(19_456, ge=1_024, description="Memory of one hash. More is dearer to guess and to check.")
    hashes_at_once: int = Field(2, ge=1, le=64, description="Keys checked at once a process; bounds CPU and memory.")
    remember_s: float = Field(
        60, ge=0, description="A key that was right is not hashed again that long; a changed key ends it at once."
    )
    failures_per_user: int = Field(10, ge=1, description="Wrong keys for a user from one address a window; then 429.")
    failures_per_address: int = Field(50, ge=1, description="Wrong keys from an address a window; then 429.")
    failures_anywhere: int = Field(
        200, ge=1, description="Wrong keys for a user from all addresses a window; then 429 for unknown addresses."
    )
    window_s: float = Field(300, gt=0, description="Length of the window; a process counts for itself.")
    remembered: int = Field(10_000, ge=16, description="Users and addresses counted at most; bounds the memory.")


class GatewayConfig(_Strict):
    """The memory gateway, ``POST /memories/search``."""

    enabled: bool = Field(False, description="Whether the route is there at all.")
    upstream: Literal["graph", "http"] = Field("graph", description="This product's graph, or a service by HTTP.")
    timeout_ms: int = Field(15_000, ge=1, description="Whole search, over all scopes.")
    resource_batch: int = Field(100, ge=1, le=256, description="Sessions of resources a search; more are fewer calls.")
    side_by_side: int = Field(8, ge=1, le=64, description="Upstream searches of one request at once.")
    agent_ownership: Literal["off", "check"] = Field(
        "off",
        description="off: every user may search any agent of the account, as the upstream has no rights on agents; "
        "check: only agents registered for the user.",
    )
    address_header: str | None = Field(
        None,
        description="Header of the reverse proxy that holds the client's address last, for instance x-forwarded-for; "
        "null takes the connection's. Without a proxy that sets it anybody can make up addresses.",
    )
    login: LoginConfig = LoginConfig()
    http: HttpUpstreamConfig = HttpUpstreamConfig()
    graph: GraphUpstreamConfig = GraphUpstreamConfig()
    llm: LanguageModelConfig = LanguageModelConfig()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.enabled and self.upstream == "http" and not self.http.base_url:
            raise ValueError("upstream http needs http.base_url")
        return self
