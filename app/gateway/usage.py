"""What an upstream says that an answer cost, where Mneme does not read the answer itself: the other paths under /v1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.capture.facts import Usage

MAX_USAGE_BYTES = 4096
"""A usage object has some hundred bytes."""
MAX_TRIES = 8
"""Places that are looked at, from the end: usage stands last, or nearly so."""
_MARK = b'"usage"'
_DECODER = json.JSONDecoder()


def usage_told(body: bytes) -> Usage | None:
    """The last usage of a JSON body or of a stream of JSON events; None where it tells none.

    Only the object itself is parsed: a body of embeddings has megabytes. Inside of a JSON string the mark cannot stand, because
    there its quotes are escaped.
    """
    end = len(body)
    for _ in range(MAX_TRIES):
        end = body.rfind(_MARK, 0, end)
        if end < 0:
            return None
        rest = body[end + len(_MARK) : end + len(_MARK) + MAX_USAGE_BYTES].lstrip()
        if rest[:1] != b":" or not (rest := rest[1:].lstrip()).startswith(b"{"):
            continue
        try:
            found, _at = _DECODER.raw_decode(rest.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            continue
        if (usage := _usage(found)) is not None:
            return usage
    return None


def _usage(given: Mapping[str, Any]) -> Usage | None:
    """`prompt_tokens` and `completion_tokens`, or, in the newer paths, `input_tokens` and `output_tokens`."""
    for prompt, completion in (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")):
        if (count := token_count(given.get(prompt))) is not None:
            details = given.get(f"{prompt}_details")
            cached = token_count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
            return Usage(count, token_count(given.get(completion)), cached)
    return None


def token_count(value: object) -> int | None:
    """A number of tokens as Postgres' integer takes it; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None
