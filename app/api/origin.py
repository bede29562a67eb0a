"""Where a request may come from: by which names this server may be asked, and by pages of which origins.

A page of any site can send requests to a server on the reader's own machine, and by DNS rebinding read the answers. In `open`
mode no key keeps it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from app.errors import Forbidden, MnemeError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
NOBODYS = (".localhost", ".internal")
"""Endings of names that nobody can have in public (RFC 6761; ICANN's resolution 2024.07.29.06), so that no page elsewhere has
one. Containers ask their host as `host.docker.internal`."""
CHECKED_KEPT = 1024
"""Pairs of Host and Origin whose check is kept: clients have few, and a check costs 10 µs."""


def known_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Those that the settings name, and loopback."""
    return LOOPBACK | {each.lower() for each in hosts}


def check_origin(
    host: str | None, origin: str | None, allowed: frozenset[str], origins: frozenset[str] = frozenset()
) -> None:
    """Raises Forbidden for a Host, or an Origin, that is none of `allowed`. `origins`: further ones, as they
    send themselves."""
    _check_host(_name(f"//{host or ''}"), allowed)
    if origin is not None and origin not in origins and _name(origin) not in allowed:
        raise _not_from_here()


def check_page(host: str | None, origin: str | None, allowed: frozenset[str], origins: frozenset[str]) -> None:
    """As `check_origin`, but lets in what no page elsewhere can have: as Host an address, a name without a dot, which means
    something within a network only, and a name that is nobody's; as Origin what is no page on the web (an editor's or a
    browser's extension), and a page of this very host. `origins`: further ones, as they send themselves."""
    name = _name(f"//{host or ''}")
    if not _unowned(name or ""):
        _check_host(name, allowed)
    if origin is None or origin in origins:
        return
    if (origin == "null" or origin.startswith(("http:", "https:"))) and _name(origin) not in allowed | {name}:
        raise _not_from_here()


class OriginMiddleware:
    """Plain ASGI: `check_page` before everything else."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """`hosts`: names beside loopback; `origins`: of pages that may ask."""
        self._app = app
        allowed, further = known_hosts(hosts), frozenset(origins)

        @lru_cache(CHECKED_KEPT)
        def refusal(host: str | None, origin: str | None) -> MnemeError | None:
            try:
                check_page(host, origin, allowed, further)
            except MnemeError as error:
                return error
            return None

        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, host, origin = self._app, None, None
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value.decode("latin-1")
                elif name == b"origin":
                    origin = value.decode("latin-1")
            if (refused := self._refusal(host, origin)) is not None:
                from starlette.responses import JSONResponse

                app = JSONResponse(refused.body(), status_code=refused.status)
        await app(scope, receive, send)


def _check_host(name: str | None, allowed: frozenset[str]) -> None:
    if name not in allowed:
        raise Forbidden("This server is not known by this name: add it to MNEME_HOSTS.", param="Host")


def _not_from_here() -> Forbidden:
    return Forbidden("Pages of this origin may not ask here: add its host to MNEME_HOSTS.", param="Origin")


def _unowned(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name.endswith(NOBODYS) or (bool(name) and "." not in name)
    return True


def _name(url: str) -> str | None:
    """The host's, without its port; None: it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
