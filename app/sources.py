"""What a setting may hold beside a number or a word: URLs, upstreams, databases of a business's own, tools that show cards,
webhooks."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, SecretStr, field_validator

_DSN = re.compile(r"postgres(?:ql)?://(?:[^/?#]*@)?(?P<hosts>[^/?#]*)")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")

Price = Literal["frugal", "balanced", "thorough"]
"""What a token of memory costs (`context/worth.py` has the figures)."""
PRICE_NAMES: tuple[Price, ...] = get_args(Price)

Placement = Literal["tail", "system", "second_system"]

_JSON_PLACE = r"^[^.]+(\.[^.]+)*$"


_LEAST_SECRET_CHARS = 16
"""Of what signs cookies: random ones of this length, in Base64, have 96 bits."""


def _readable_dsn(value: SecretStr) -> SecretStr:
    """Raises ValueError, which quotes nothing of it: drivers quote a part of what they cannot read, with a `/` in it, of the
    password."""
    found = _DSN.match(value.get_secret_value())
    if found is None:
        raise ValueError("must begin with postgresql://")
    if not all(_HOST.fullmatch(each) for each in found["hosts"].split(",")):
        raise ValueError("has no port that is a number; in user and password write / : @ ? as %2F %3A %40 %3F")
    return value


def _plain_url(value: str) -> str:
    """Raises ValueError, which quotes nothing of it."""
    if not value.startswith(("http://", "https://")):
        raise ValueError("must begin with http:// or https://")
    try:
        parts = urlsplit(value)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError("has no host, or a port that is none")
    return value.rstrip("/")


def _long_secret(value: SecretStr | None) -> SecretStr | None:
    if value is None or not value.get_secret_value():
        return None
    if len(value.get_secret_value()) < _LEAST_SECRET_CHARS:
        raise ValueError(f"must have at least {_LEAST_SECRET_CHARS} characters: `openssl rand -base64 32` makes one")
    return value


def _readable_patterns(value: list[str]) -> list[str]:
    for pattern in value:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return value


Dsn = Annotated[SecretStr, AfterValidator(_readable_dsn)]
"""A DSN of Postgres that can be read."""
BaseUrl = Annotated[str, AfterValidator(_plain_url)]
"""Without a slash at its end."""
SigningSecret = Annotated[SecretStr | None, AfterValidator(_long_secret)]
"""An empty one is none."""
Patterns = Annotated[list[str], AfterValidator(_readable_patterns)]
"""Regular expressions."""


class UpstreamRoute(BaseModel, extra="forbid"):
    """One upstream of several: `models` are names, or patterns with `*`, matched in order."""

    name: str
    base_url: BaseUrl
    api_key: SecretStr | None = None
    models: list[str] = ["*"]
    aliases: dict[str, str] = {}
    """Name that the client asks for → name that this upstream knows."""
    placement: Placement | None = None
    """Where the memory block goes for this upstream; unset: `MNEME_PLACEMENT`."""
    send_reasoning: bool | None = None
    """Whether history that Mneme supplies has the reasoning of answers after their tool loop has ended; unset:
    `MNEME_SEND_REASONING`."""
    fallbacks: list[str] = []
    """Names of the upstreams that are asked, in order, when this one fails."""


class CardTool(BaseModel, extra="forbid"):
    """A tool whose results are shown as cards: of which type; `items`: where in the result the list of them is, unset: the
    result is one card; `title`: where in a card its title is. Places are names of members and numbers in lists, with dots."""

    type: Annotated[str, Field(min_length=1, max_length=100)]
    items: Annotated[str, Field(pattern=_JSON_PLACE)] | None = None
    title: Annotated[str, Field(pattern=_JSON_PLACE)] | None = None


class DomainSource(BaseModel, extra="forbid"):
    """A business's own database: how it is read, and by which tenants."""

    dsn: Dsn
    """Of a role that can only read."""
    tenants: list[str] = ["local"]
    """Names of the tenants whose questions may be answered from it; nobody else's ever are."""
    statement_timeout_ms: int = Field(500, ge=1, le=60_000)
    """Longest statement, milliseconds; seed 004 aims at 50 for a query. Prompts give up sooner, at their deadline."""
    rows: int = Field(20, ge=1, le=200)
    """Most rows told of one query."""
    connections: int = Field(4, ge=1, le=100)
    """Most connections of each server process, opened when needed."""
    allow_writer: bool = False
    """Go on although the role could write: every query is in a read-only transaction even so."""


WebhookEvent = Literal[
    "memory.created",
    "memory.promoted",
    "memory.superseded",
    "memory.invalidated",
    "memory.expired",
    "memory.forgotten",
    "memory.restored",
    "conflict.found",
    "user.erased",
    "request.degraded",
    "job.dead",
]
"""What webhooks may be about (docs/how-to/webhooks.md)."""

SECRET_BYTES = (24, 64)
"""Least and most bytes of a webhook's secret (Standard Webhooks)."""


class WebhookTarget(BaseModel, extra="forbid"):
    """Who is told of what."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
    """For the log, the figures and dead letters; what waits for a target waits under its name."""
    url: SecretStr
    """Where it is told; some carry a key in their path, so that it is never shown."""
    secret: SecretStr
    """`whsec_` and 24 to 64 bytes in base64; several with spaces between while one takes the place of another."""
    events: Annotated[list[WebhookEvent], Field(min_length=1)]
    tenant: str | None = None
    """The one tenant of whom it is told; unset: all."""
    text: bool = False
    """Whether texts of memories are sent."""

    @field_validator("url")
    @classmethod
    def _plain_url(cls, value: SecretStr) -> SecretStr:
        if not re.fullmatch(r"https?://[^\s/?#]+[^\s#]*", value.get_secret_value()):
            raise ValueError("must begin with http:// or https://")
        try:
            _ = urlsplit(value.get_secret_value()).port
        except ValueError:
            raise ValueError("has no host and port that can be read") from None
        return value

    @field_validator("secret")
    @classmethod
    def _readable_secret(cls, value: SecretStr) -> SecretStr:
        if not (secrets := value.get_secret_value().split()):
            raise ValueError("is empty")
        for each in secrets:
            try:
                key = base64.b64decode(each.removeprefix("whsec_"), validate=True) if each.startswith("whsec_") else b""
            except binascii.Error:
                key = b""
            if not SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]:
                raise ValueError("must be whsec_ and the base64 of 24 to 64 bytes: see docs/how-to/webhooks.md")
        return value

    @property
    def keys(self) -> list[bytes]:
        """What is signed with, the newest first."""
        return [base64.b64decode(each.removeprefix("whsec_")) for each in self.secret.get_secret_value().split()]


def _distinct(value: list[WebhookTarget]) -> list[WebhookTarget]:
    if len({each.name for each in value}) < len(value):
        raise ValueError("two targets have the same name")
    return value


Webhooks = Annotated[list[WebhookTarget], AfterValidator(_distinct)]
