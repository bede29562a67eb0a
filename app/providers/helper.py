"""The helper LLM: one question, one answer in a known shape."""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel

from app.optional import needed
from app.settings import Settings

Shape = TypeVar("Shape", bound=BaseModel)


class Helper(Protocol):
    """Answers in the shape of a pydantic model."""

    async def ask(self, shape: type[Shape], *, system: str, user: str, max_tokens: int) -> Shape:
        """One answer. `max_tokens` bounds it. Raises `HelperError` when there is none of that shape."""


class OpenHelper(Helper, Protocol):
    """One that was opened."""

    async def close(self) -> None:
        """Give back connections."""


def build_helper(settings: Settings) -> OpenHelper | None:
    """The helper that the settings name, or None: everything works by rules then. Raises `NotReady`, also if incomplete."""
    if settings.helper_base_url is None:
        return None
    helper: OpenHelper = needed("helper", "MNEME_HELPER_BASE_URL").open_helper(settings)
    return helper


def _storable(text: str) -> str:
    """As Postgres can keep it: JSON can write half a character, and a NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


Words = Annotated[str, AfterValidator(_storable)]
