"""The gateway's part of the OpenAPI document."""

from contracts.responses import ErrorBody
from deployments.openapi import Section, answer, body, errors, ref
from gateway.requests import SearchMemoriesRequest
from gateway.results import SearchMemoriesResponse

PATH = "/memories/search"
NAME = "memories_search"
_ERRORS = {
    401: "user_id or user_key is not valid: RET-4011.",
    403: "The agent is not registered for the user, and has to be: RET-4031.",
    422: "The body has the wrong shape; `field` names the place: RET-4220. Or the upstream refused: RET-4241.",
    429: "Too many wrong keys: RET-4292; the account or user is over a limit, or there is no room: RET-4291.",
    502: "The upstream failed, can't be reached, or answered what is no answer: RET-5051.",
    503: "A stage or the database is down: RET-5001, RET-5031. Retry.",
    504: "The upstream took too long: RET-5052. Retry.",
}


def section() -> Section:
    """The one route."""
    found = "The memories, best first; `degraded` is there where something was missing."
    # An upstream service's own status is passed on, whichever it is.
    passed_on = {"default": answer("The upstream refused or failed with this status: RET-4241, RET-5051.", ErrorBody)}
    route = {
        "operationId": NAME,
        "summary": "Search the memories of a user or an agent; user_id and user_key in the body authenticate.",
        "security": [],
        "requestBody": body(ref(SearchMemoriesRequest)),
        "responses": {"200": answer(found, SearchMemoriesResponse)} | errors(_ERRORS) | passed_on,
    }
    return Section({PATH: {"post": route}}, (SearchMemoriesRequest,), (SearchMemoriesResponse,))
