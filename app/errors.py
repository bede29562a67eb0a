"""Every error that Mneme itself raises, in one tree.

    MnemeError                          500 server_error
    ├── BadRequest                      400 invalid_request_error
    │   ├── BadHeader                   400
    │   └── BadBody                     400
    ├── Unauthenticated                 401 authentication_error
    ├── Forbidden                       403 permission_error
    ├── NotFound                        404 not_found_error
    ├── Conflict                        409 conflict_error
    ├── TooLarge                        413 invalid_request_error
    ├── UpgradeRefused                  426 invalid_request_error
    ├── RateLimited                     429 requests, tokens or insufficient_quota
    ├── Unavailable                     503 service_unavailable
    │   ├── StoreUnavailable            503   Postgres cannot be reached, or is too slow
    │   ├── SpoolUnavailable            503   the spool, which stands in for it, is full or cannot be written
    │   ├── DomainAway                  503   a business's own database gives no answer; no request fails for it
    │   └── Stopping                    503   this server ends
    ├── UpstreamError                   502 upstream_error
    │   ├── UpstreamUnreachable         502   no connection, or it broke before the head of the answer
    │   ├── UpstreamTimeout             504
    │   └── UpstreamSuspended           503   it failed too often just now, and is left alone for a while
    ├── HelperError                     502   the helper LLM failed (jobs only)
    │   ├── HelperAnswerError           502   it answered in another shape
    │   └── HelperBudgetError           502   its tokens of this day are spent
    └── NotReady                        503   set-up is wrong; the message says how to mend it

The docstring of a class is its default message. `status` and `type` are what an OpenAI client sees:
`{"error": {"message", "type", "param", "code"}}` (see `body`).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, Literal


class MnemeError(Exception):
    """Something went wrong inside Mneme."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    retry_after_s: float | None = None
    """Seconds after which another try makes sense, where that is known: the answer's Retry-After."""

    def __init__(self, message: str | None = None, *, param: str | None = None, code: str | None = None) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "").split("\n", 1)[0]
        self.param = param
        self.code = code
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """The error as OpenAI writes it, ready to be serialised."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class BadRequest(MnemeError):
    """The request cannot be understood."""

    status = 400
    type = "invalid_request_error"


class BadHeader(BadRequest):
    """A header of Mneme's own has a value that it does not know."""


class BadBody(BadRequest):
    """The body is not what this route takes."""


class Unauthenticated(MnemeError):
    """No valid Mneme key: send `Authorization: Bearer mneme_…`, or `X-Mneme-Key` beside the upstream's own key."""

    status = 401
    type = "authentication_error"


class Forbidden(MnemeError):
    """This key may not do that."""

    status = 403
    type = "permission_error"


class NotFound(MnemeError):
    """There is no such thing here."""

    status = 404
    type = "not_found_error"


class Conflict(MnemeError):
    """This does not fit what is stored."""

    status = 409
    type = "conflict_error"


class TooLarge(MnemeError):
    """The body is larger than MNEME_MAX_BODY_BYTES."""

    status = 413
    type = "invalid_request_error"


class UpgradeRefused(MnemeError):
    """WebSocket is not served here: send a POST request, with `"stream": true` for an answer that streams."""

    status = 426
    type = "invalid_request_error"
    headers: ClassVar[Sequence[tuple[bytes, bytes]]] = ((b"upgrade", b"HTTP/1.1"), (b"connection", b"Upgrade"))
    """A 426 must name a protocol that the server accepts (RFC 9110 §15.5.22)."""


class RateLimited(MnemeError):
    """Too many requests.

    `kind` takes the place of the type, as OpenAI has it: requests, tokens or insufficient_quota. `headers` go with the answer.
    """

    status = 429
    type = "rate_limit_error"

    def __init__(
        self,
        message: str | None = None,
        *,
        kind: str | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        **told: str | None,
    ) -> None:
        super().__init__(message, **told)
        self.kind = kind
        self.headers = headers

    def body(self) -> dict[str, Any]:
        shaped = super().body()
        shaped["error"]["type"] = self.kind or type(self).type
        return shaped


class Unavailable(MnemeError):
    """Not available at the moment; try again."""

    status = 503
    type = "service_unavailable"


class StoreUnavailable(Unavailable):
    """The database cannot be reached at the moment; try again."""

    too_much = False
    """It is there, but could not do this in its time or its memory: what was asked may be the reason, not the moment."""


class SpoolUnavailable(Unavailable):
    """The spool is full, or its disk cannot be written."""


AwayReason = Literal["unreachable", "timeout", "changed", "refused", "writer", "suspended"]


class DomainAway(Unavailable):
    """A business's own database gives no answer at the moment.

    `reason`: unreachable; timeout; changed (a table or column is not as the ontology has it); refused (by the database, or no
    domain of this tenant's); writer (the role could write, and may not); suspended (it failed too often just now).
    """

    def __init__(
        self, domain: str = "", reason: AwayReason = "unreachable", detail: str = "", **told: str | None
    ) -> None:
        self.domain = domain
        self.reason = reason
        self.detail = detail
        super().__init__(f"The domain {domain} gives no answer: {reason}{f' ({detail})' if detail else ''}.", **told)


class Stopping(Unavailable):
    """The server is stopping; try again."""

    retry_after_s = 1.0  # another server has the port by then, or none will


class NotReady(Unavailable):
    """Mneme is not set up; `mneme doctor` says what is missing."""


class UpstreamError(MnemeError):
    """The upstream failed."""

    status = 502
    type = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """The upstream cannot be reached."""


class UpstreamTimeout(UpstreamError):
    """The upstream did not answer in time."""

    status = 504


class UpstreamSuspended(UpstreamError):
    """The upstream failed too often just now, and is left alone for a moment; try again."""

    status = 503
    type = "service_unavailable"


class HelperError(MnemeError):
    """The helper LLM failed."""

    status = 502
    type = "upstream_error"


class HelperAnswerError(HelperError):
    """The helper LLM answered, but not with an object of the asked shape."""


class HelperBudgetError(HelperError):
    """The helper LLM's tokens of this day are spent; rules go on alone until midnight UTC."""
