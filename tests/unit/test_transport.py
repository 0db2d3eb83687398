"""What a stage call packs into bytes, without a cluster; calls themselves are in tests/integration."""

import msgspec
import pytest

from contracts import errors
from contracts.errors import StageFailed, StrataError
from contracts.records import ModelRef
from deployments.transport import decode_reply, encode_error, encode_result

DECODER = msgspec.msgpack.Decoder(ModelRef)
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StrataError)]


def test_a_result_comes_back_as_it_was() -> None:
    model = ModelRef("m", "1", 8)
    assert decode_reply(encode_result(model), DECODER) == model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "parts", [{}, {"field": "f", "remedy": "Mend it.", "stage": "s", "retry_after": 12.5, "http_status": 418}], ids=len
)
def test_an_error_keeps_its_class_and_all_its_parts(kind: type[StrataError], parts: dict[str, object]) -> None:
    """Also its status and how long to wait: what a stage says of that reaches the caller's ``Retry-After``."""
    error = kind("Wrong.", **parts)  # type: ignore[arg-type]
    with pytest.raises(kind) as caught:
        decode_reply(encode_error(error), DECODER)
    assert type(caught.value) is kind
    assert str(caught.value) == str(error)
    for part in ("field", "remedy", "stage", "retry_after", "http_status"):
        assert getattr(caught.value, part) == getattr(error, part)


def test_an_error_of_a_class_that_the_contract_does_not_know_is_a_failure_of_the_stage() -> None:
    class Private(StrataError):
        """Known to the stage alone."""

    with pytest.raises(StageFailed, match="Wrong"):
        decode_reply(encode_error(Private("Wrong.")), DECODER)


@pytest.mark.parametrize(
    "reply", [b"", b"\x00", b"\x00\xc1", b"\x01", b"\x01\xc1", b"\x02", b"\x01\x93\xa1a\xa1b\xa1c"]
)
def test_garbage_is_told_from_an_answer(reply: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_reply(reply, DECODER)
