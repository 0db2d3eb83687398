"""The error tree."""

import pickle

import pytest

from contracts import errors
from contracts.errors import Overloaded, RateLimited, StrataError
from deployments.http_errors import error_response
from deployments.identity.caller import Refused

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StrataError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling_with_all_its_parts(kind: type[StrataError]) -> None:
    error = kind("Wrong.", field="f", remedy="Mend it.", stage="s", retry_after=2.5, http_status=418)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert copy.retry_after == 2.5


def test_a_refusal_survives_pickling_with_its_reason() -> None:
    assert pickle.loads(pickle.dumps(Refused("jwt_expired"))).reason == "jwt_expired"


@pytest.mark.parametrize(("seconds", "header"), [(0.02, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60")])
def test_retry_after_is_rounded_up_to_whole_seconds(seconds: float, header: str) -> None:
    response = error_response(RateLimited("Too often.", retry_after=seconds), "r")
    assert (response.status_code, response.headers["retry-after"]) == (429, header)


def test_by_default_one_without_room_may_come_again_in_a_second() -> None:
    assert error_response(Overloaded("Full."), "r").headers["retry-after"] == "1"


def test_what_the_caller_must_mend_names_no_time() -> None:
    assert "retry-after" not in error_response(errors.InvalidFilter("Wrong."), "r").headers
