"""Whether a request was meant for this server: against DNS rebinding.

A page of another site may make its own name point at this server, but not change the headers that say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.common import error_response
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


def check_name(host: str | None, allowed: frozenset[str]) -> None:
    """As `check_host`, but lets in what no page elsewhere can make point here: an address, and a name without a dot, which
    means something within a network only."""
    name = _name(f"//{host}") or ""
    if not _unowned(name):
        check_host(host, allowed)


def _unowned(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return bool(name) and "." not in name
    return True


class NameCheck:
    """Plain ASGI: `check_name` before everything else, for paths that begin with `prefix`. In `open` mode, where no key keeps
    strangers out."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], prefix: str) -> None:
        self._app = app
        self._hosts = known_hosts(hosts)
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            try:
                check_name(Headers(scope=scope).get("host"), self._hosts)
            except BadHeader as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def known_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Those that the settings name, and loopback."""
    return LOOPBACK | {each.lower() for each in hosts}


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
