"""Whether a request was meant for this server: against DNS rebinding.

A page of another site may make its own name point at this server, but not change the headers that say so.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from app.errors import BadHeader, Forbidden

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def check_host(host: str | None, allowed: frozenset[str]) -> None:
    """Raises BadHeader for a Host that is none of `allowed`."""
    if _name(f"//{host}") not in allowed:
        raise BadHeader("This server is not known by this name: add it to MNEME_HOSTS.", param="Host")


def check_origin(host: str | None, origin: str | None, allowed: frozenset[str]) -> None:
    """As `check_host`; and raises Forbidden for an Origin that is none of them."""
    check_host(host, allowed)
    if origin is not None and _name(origin) not in allowed:
        raise Forbidden("Pages of this origin may not ask here: add its host to MNEME_HOSTS.", param="Origin")


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
