"""In which language a message is written, by its script and function words."""

from __future__ import annotations


def language_of(text: str) -> str:
    """The language of a message ("en", "es", "de", "fr", "pt", "zh"), or "" where it is unknown."""
    return ""
