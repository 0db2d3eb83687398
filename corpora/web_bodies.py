"""What callers of the web corpus send."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from contracts.requests import Strict
from corpora.canonical_url import MAX_URL, canonical
from corpora.rag.bodies import Identifier, Label, Moment, Text

DIMENSIONS = ("session_id", "query_id")


def _url(value: str) -> str:
    try:
        return canonical(value)
    except ValueError as error:
        raise PydanticCustomError("url", "This is no address of a page: {why}", {"why": str(error)}) from None


class WebPage(Strict):
    """A page as it was fetched; one of ``content`` and ``snippet`` is needed."""

    url: Annotated[str, Field(max_length=MAX_URL), AfterValidator(_url)] = Field(description="http or https.")
    title: Annotated[Text, Field(max_length=4096)] = ""
    snippet: Text = Field("", description="What the search engine showed; stands in where there is no content.")
    content: Text = Field("", description="Plain text.")
    domain: Label | None = Field(None, description="By default the host of the url, which alone decides trust.")
    published_at: Moment | None = None
    fetched_at: Moment | None = Field(None, description="Now by default.")
    language: Label | None = None
    source_rank: int | None = Field(None, ge=0, le=10**6, description="Where the search engine ranked it.")
    ttl_at: Moment | None = Field(None, description="When it stops showing; milliseconds since the epoch or ISO 8601.")


class Dimensions(Strict):
    """Of which every ingest and retrieval must name one at least (R6)."""

    session_id: Identifier | None = None
    query_id: Identifier | None = None


class WebIngestBody(Dimensions):
    """Pages of one session, one query, or both."""

    pages: list[WebPage] = Field(min_length=1, max_length=500)


class WebOptions(Strict):
    """The web corpus has no options; filters narrow by what a page says of itself."""


class WebRetrieveBody(Dimensions):
    """Where to look: all dimensions given must be those of the page."""

    options: WebOptions = WebOptions()
