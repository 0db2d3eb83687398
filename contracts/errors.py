"""The error tree. Every error a caller can meet is one of these, with one code each.

::

    StrataError
    ├── RequestError                      the caller can mend it (4xx)
    │   ├── BlankQuery          RET-4001  400
    │   ├── TopKOutOfRange      RET-4002  400
    │   ├── ThresholdOutOfRange RET-4003  400
    │   ├── InvalidFilter       RET-4004  400
    │   ├── InvalidUri          RET-4005  400
    │   ├── InvalidInput        RET-4006  400   an ingest file or record
    │   ├── BodyTimeout         RET-4080  408
    │   ├── BodyTooLarge        RET-4130  413
    │   ├── InvalidBody         RET-4220  422   a request body of the wrong shape
    │   │   └── MissingDimension RET-4222 422   a corpus's mandatory dimension
    │   ├── UpstreamRefused     RET-4241  422   or the status that the upstream service gave
    │   ├── Unauthenticated     RET-4011  401
    │   ├── TargetForbidden     RET-4031  403
    │   ├── ReadForbidden       RET-4032  403
    │   ├── NotFound            RET-4042  404   a corpus, or a receipt
    │   └── Overloaded          RET-4291  429
    │       └── RateLimited     RET-4292  429   this caller, not the service
    ├── StageError                        a stage could not do its part (5xx, retryable)
    │   ├── RecallFailed        RET-5001  503
    │   ├── RecheckFailed       RET-5002  503
    │   ├── AssemblyFailed      RET-5003  503
    │   ├── StageFailed         RET-5004  503   any other stage
    │   ├── StageTimeout        RET-5041  504
    │   └── StageDown           RET-5042  503   its circuit is open
    ├── DatabaseDown            RET-5031  503   the SQL database can't be asked
    ├── UpstreamFailed          RET-5051  502   a service that answers for us
    │   └── UpstreamTimeout     RET-5052  504
    └── ConfigError             CONFIG_ERROR 500 refused at start

RET-4041 (target absent) and RET-4221 (planner unsure) are warnings, not errors: see ``contracts.trace``.
Errors survive pickling, so they cross processes unchanged.
"""

from typing import Any, ClassVar


class StrataError(Exception):
    """Base of every error of this product.

    Args:
        message: One sentence for the reader, saying what is wrong; never query text, never a secret.
        field: The request or config field at fault, dotted; empty when none is.
        remedy: What to do about it; empty when there is nothing to do but retry.
        stage: The stage that raised it; empty outside the graph.
        retry_after: Seconds after which it is worth trying again, 0 for no such advice; by default what the class says.
        http_status: The status that another service gave; by default what the class says.
    """

    code: ClassVar[str] = "RET-5000"
    http_status: int = 500
    retryable: ClassVar[bool] = False
    retry_after: float = 0.0

    def __init__(
        self,
        message: str,
        *,
        field: str = "",
        remedy: str = "",
        stage: str = "",
        retry_after: float | None = None,
        http_status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.remedy = remedy
        self.stage = stage
        if retry_after is not None:
            self.retry_after = retry_after
        if http_status is not None:
            self.http_status = http_status

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild with all keyword parts, which ``Exception`` by itself would lose."""
        parts = (self.message, self.field, self.remedy, self.stage, self.retry_after, self.http_status)
        return _rebuild, (type(self), *parts)

    def __str__(self) -> str:
        where = f" [{self.stage}]" if self.stage else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{self.code}{where}: {self.message}{remedy}"


def _rebuild(
    kind: type[StrataError], message: str, field: str, remedy: str, stage: str, retry_after: float, http_status: int
) -> StrataError:
    return kind(message, field=field, remedy=remedy, stage=stage, retry_after=retry_after, http_status=http_status)


class RequestError(StrataError):
    """The caller sent something that can't be answered."""

    code = "RET-4000"
    http_status = 400


class BlankQuery(RequestError):
    """The query holds no text (C3)."""

    code = "RET-4001"


class TopKOutOfRange(RequestError):
    """``top_k`` lies outside 1..50 (C3)."""

    code = "RET-4002"


class ThresholdOutOfRange(RequestError):
    """``score_threshold`` is no number in 0..1 (C3)."""

    code = "RET-4003"


class InvalidFilter(RequestError):
    """A filter names an unknown field, operator or shape. Nothing was searched."""

    code = "RET-4004"


class InvalidUri(RequestError):
    """A URI is not in canonical form."""

    code = "RET-4005"


class InvalidInput(RequestError):
    """A file or record to ingest can't be understood."""

    code = "RET-4006"


class BodyTimeout(RequestError):
    """The request body did not come in time; nothing was searched."""

    code = "RET-4080"
    http_status = 408
    retryable = True


class BodyTooLarge(RequestError):
    """The request body is longer than the server takes."""

    code = "RET-4130"
    http_status = 413


class InvalidBody(RequestError):
    """The request body is no JSON, or a field of it is unknown, missing or of the wrong type; nothing was searched."""

    code = "RET-4220"
    http_status = 422


class MissingDimension(InvalidBody):
    """A dimension that a corpus demands of every search or ingest is missing; nothing was searched (R6)."""

    code = "RET-4222"


class UpstreamRefused(RequestError):
    """The service that should answer refused the request; its own status and words are passed on (G8)."""

    code = "RET-4241"
    http_status = 422


class Unauthenticated(RequestError):
    """No credentials, or ones that are not valid; why not is not told."""

    code = "RET-4011"
    http_status = 401


class TargetForbidden(RequestError):
    """``target_uri`` lies outside the caller's scope, whether it exists or not (C21)."""

    code = "RET-4031"
    http_status = 403


class ReadForbidden(RequestError):
    """The caller may not read this URI, or it does not exist; the two are not told apart (C22)."""

    code = "RET-4032"
    http_status = 403


class NotFound(RequestError):
    """There is no corpus or no receipt of that name; what a caller may not know of is not told apart."""

    code = "RET-4042"
    http_status = 404


class Overloaded(RequestError):
    """The service has no room for this request now."""

    code = "RET-4291"
    http_status = 429
    retryable = True
    retry_after = 1.0


class RateLimited(Overloaded):
    """The caller's account or key asks more often, or more at once, than it may."""

    code = "RET-4292"


class StageError(StrataError):
    """A stage could not do its part."""

    code = "RET-5000"
    http_status = 503
    retryable = True
    retry_after = 1.0


class RecallFailed(StageError):
    """Both vector and keyword recall failed (C30)."""

    code = "RET-5001"


class RecheckFailed(StageError):
    """The rechecker failed; its relevance rules were skipped (C13)."""

    code = "RET-5002"


class AssemblyFailed(StageError):
    """The assembler failed; raw seed hits are returned (C14)."""

    code = "RET-5003"


class StageFailed(StageError):
    """Any other stage failed."""

    code = "RET-5004"


class StageTimeout(StageError):
    """A stage ran out of its share of the deadline."""

    code = "RET-5041"
    http_status = 504


class StageDown(StageError):
    """A stage was not asked: it failed too often just now, and its circuit breaker is open."""

    code = "RET-5042"


class DatabaseDown(StrataError):
    """The SQL database can't be asked, or refused; nothing was written."""

    code = "RET-5031"
    http_status = 503
    retryable = True
    retry_after = 1.0


class UpstreamFailed(StrataError):
    """A service that answers for this one failed, can't be reached, or answered what nobody understands.

    Its own status is passed on where it gave one (G8).
    """

    code = "RET-5051"
    http_status = 502
    retryable = True


class UpstreamTimeout(UpstreamFailed):
    """A service that answers for this one did not do so in time."""

    code = "RET-5052"
    http_status = 504
    retry_after = 1.0


class ConfigError(StrataError):
    """A setting is wrong; the service refuses to start."""

    code = "CONFIG_ERROR"
