"""The helper LLM: one question, one answer in a known shape, within a budget of tokens a day."""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

from msgspec import Struct
from pydantic import AfterValidator, BaseModel

from app.optional import needed
from app.settings import Settings

Shape = TypeVar("Shape", bound=BaseModel)


class Helper(Protocol):
    """Answers in the shape of a pydantic model."""

    async def ask(self, shape: type[Shape], *, system: str, user: str, max_tokens: int) -> Shape:
        """Return one answer, of at most `max_tokens`. Raises `HelperAnswerError` for another shape, `HelperBudgetError` where
        the day's tokens are spent, and `HelperError` for whatever may work later."""


class OpenHelper(Helper, Protocol):
    """One that was opened."""

    async def close(self) -> None:
        """Give back connections."""


class TokenBudget(Protocol):
    """Counts the helper LLM's tokens of a day, across processes."""

    async def reserve(self, tokens: int) -> None:
        """Count a call and the tokens that it will need. Raises `HelperBudgetError` where they are not left."""

    async def settle(self, tokens: int) -> None:
        """Add to the day what a call needed beyond its reservation; a negative number gives some back."""


class HelperEndpoint(Struct, frozen=True):
    """The address of the helper LLM. `api_key` None: none is sent. `upstream`: the name of the upstream that it is at."""

    base_url: str
    model: str
    api_key: str | None
    upstream: str | None = None

    def __repr__(self) -> str:
        return f"HelperEndpoint({self.base_url!r}, {self.model!r})"  # without the key


def build_helper(endpoint: HelperEndpoint | None, settings: Settings, budget: TokenBudget | None) -> OpenHelper | None:
    """Open the helper LLM at `endpoint`; None: there is none, and everything works by rules. Raises `NotReady`."""
    if endpoint is None:
        return None
    feature = needed("helper", "MNEME_HELPER_MODEL")
    helper: OpenHelper = feature.HelperClient(endpoint, timeout_s=settings.helper_timeout_s, budget=budget)
    return helper


def _storable(text: str) -> str:
    """As Postgres can keep it: JSON can write half a character, and a NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


Words = Annotated[str, AfterValidator(_storable)]
