"""The body of ``POST /memories/search`` (G1). What is wrong with it is a 422 that names the field, whichever it is."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from contracts.errors import InvalidBody
from contracts.requests import MAX_QUERY, Strict

Method = Literal["keyword", "vector", "hybrid", "agentic"]
ScopeName = Literal["current_chat", "resources", "all_user_memory"]
MAX_TOP_K = 100
# As many as the server's cap.
ALL = -1
_MAX_NAME = 256


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("it holds a character that is no text")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


def _in_range(top_k: int) -> int:
    if top_k != ALL and not 1 <= top_k <= MAX_TOP_K:
        raise ValueError(f"it must be {ALL} or 1..{MAX_TOP_K}")
    return top_k


def _listed(scope: Any) -> Any:
    return [scope] if isinstance(scope, str) else scope


Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME), AfterValidator(_storable)]


class SearchMemoriesRequest(Strict):
    """``POST /memories/search``."""

    user_id: Name = Field(description="Who asks; its own resources, tombstones and overrides hold.")
    user_key: Name = Field(repr=False, description="Its secret.")
    conversation_id: Annotated[str, Field(max_length=_MAX_NAME), AfterValidator(_storable)] | None = Field(
        None, description="The chat of scope current_chat, which is skipped without one."
    )
    query: Annotated[str, Field(max_length=MAX_QUERY), AfterValidator(_not_blank), AfterValidator(_storable)] = Field(
        description="What to look for."
    )
    scope: Annotated[list[ScopeName], Field(min_length=1), BeforeValidator(_listed)] = Field(
        ["all_user_memory"], description="Where to look: one or several, searched side by side."
    )
    app_id: Name = "default"
    project_id: Name = "default"
    agent_id: Name | None = Field(None, description="Search this agent's memory instead of the user's.")
    method: Method = Field("hybrid", description="agentic plans, looks at what came back and asks again.")
    top_k: Annotated[int, AfterValidator(_in_range)] = Field(
        8, description="Results wanted a scope and memory type: -1 for the upstream's own cap, or 1..100."
    )
    radius: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="Least similarity of a result.")
    include_profile: bool = Field(True, description="Give the owner's profile too.")
    enable_llm_rerank: bool = Field(True, description="Let a language model order the results, where there is one.")
    filters: dict[str, Any] | None = Field(None, description="Conditions in the upstream's language: AND, OR, fields.")


def parse(body: bytes) -> SearchMemoriesRequest:
    """Read a request body.

    Raises:
        InvalidBody: It is no JSON, or a field is unknown, missing, or wrong; ``field`` names it.
    """
    try:
        return SearchMemoriesRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"]))[:_MAX_NAME]
    match first["type"]:
        case "json_invalid":
            message, remedy = "The body is no JSON.", "Send a JSON object."
        case "extra_forbidden":
            message, remedy = "The body has an unknown field.", "Remove it."
        case "missing":
            message, remedy = "The body lacks a field.", "Add it."
        case _:
            message, remedy = f"{field} is wrong: {_lowered(first['msg'])}.", "See docs/gateway.md for the fields."
    raise InvalidBody(message, field=field, remedy=remedy)


def _lowered(text: str) -> str:
    text = text.removeprefix("Value error, ").removesuffix(".")
    return text[:1].lower() + text[1:]
