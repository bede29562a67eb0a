"""What a client may not put into memory: the same secrets and personal numbers that are not learned from what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from app.errors import BadBody

REFUSED = (
    "This looks like a secret or a personal number, which is not remembered here "
    "(MNEME_STORE_SECRETS, MNEME_REFUSE_PII, MNEME_REFUSE_PATTERNS)."
)


class Welcome:
    """Judges what clients state outright, before anything of it is stored."""

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        """`refuses`: see `secrets.unwelcome`."""
        self._refuses = refuses

    def check(self, *texts: str, param: str) -> None:
        """Raises BadBody, which does not say what was found, where one of the texts is not to be remembered."""
        if any(self._refuses(text) for text in texts):
            raise BadBody(REFUSED, param=param, code="not_remembered")

    def check_memory(self, text: str | None, tags: Sequence[str] | None) -> None:
        """The words of a memory. (Its metadata is the application's own: it is in no prompt, and is not looked into.)"""
        if text is not None:
            self.check(text, param="text")
        if tags:
            self.check(*tags, param="tags")

    def check_fact(self, key: str, value: Any) -> None:
        """A fact says what its key and each of its values say together: `password: hunter2`."""
        self.check(*(f"{name.replace('_', ' ')}: {text}" for name, text in _values(key, value)), param="value")


def _values(key: str, value: Any) -> Iterator[tuple[str, str]]:
    # The depth is bounded (`parse_json`).
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _values(name, each)
    elif isinstance(value, list):
        for each in value:
            yield from _values(key, each)
    elif value is not None and not isinstance(value, bool):
        yield key, str(value)
