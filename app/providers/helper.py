"""The helper LLM: one question, one answer in a known shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from pydantic import BaseModel

from app.errors import NotReady
from app.settings import Settings

if TYPE_CHECKING:
    from app.providers.helper_client import HelperClient

Shape = TypeVar("Shape", bound=BaseModel)


class Helper(Protocol):
    """Answers in the shape of a pydantic model."""

    async def ask(self, shape: type[Shape], *, system: str, user: str, max_tokens: int) -> Shape:
        """One answer. `max_tokens` bounds it. Raises `HelperError` when there is none of that shape."""
        ...


def build_helper(settings: Settings) -> HelperClient | None:
    """The helper that the settings name, or None: everything works by rules then. Raises `NotReady` if incomplete."""
    if settings.helper_base_url is None:
        return None
    if not settings.helper_model:
        raise NotReady("MNEME_HELPER_BASE_URL is set, but not MNEME_HELPER_MODEL")
    from app.providers.helper_client import HelperClient  # loads httpx, which takes 0.1 s and nothing else here needs

    key = settings.helper_api_key
    return HelperClient(
        settings.helper_base_url,
        model=settings.helper_model,
        api_key=key.get_secret_value() if key else None,
        timeout_s=settings.helper_timeout_s,
    )
