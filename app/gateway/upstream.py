"""The port to the upstreams: what is sent, what comes back, and which upstream gets it (`Router`).

Its implementations are `transport.py` and the feature `simulated`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from app.errors import NotFound, NotReady, UpstreamError
from app.gateway.headers import Headers, find
from app.optional import require
from app.providers.helper import HelperEndpoint
from app.settings import DEFAULT_UPSTREAM, Settings
from app.sources import Placement, UpstreamRoute

OPENAI_BASE_URL = "https://api.openai.com/v1"
SIMULATED_BASE_URL = "simulated://local/v1"
API_PREFIX = b"/v1"
"""What stands for the base URL in the paths that clients ask for."""


class UpstreamBroke(UpstreamError):
    """The upstream broke off in the middle of its answer."""


class UpstreamRequest(Struct):
    """One request to an upstream. `headers` go out as they are; the transport adds `Host` and the framing only."""

    method: str
    url: str
    headers: Headers
    body: bytes | AsyncIterator[bytes] = b""


class UpstreamResponse(Struct):
    """The head of an answer, and its body as it comes."""

    status: int
    reason: str
    headers: Headers
    chunks: AsyncIterator[bytes]
    """The body's bytes, each as soon as it is here, without the transfer encoding. Raises `UpstreamBroke` or
    `UpstreamTimeout` when the body is not whole, after everything that had arrived was given out."""
    close: Callable[[], Awaitable[None]]
    bodyless: bool = False
    """No byte of body can come: HEAD, 204, 304, or a length of 0. `chunks` ends at once."""
    attempts: int = 1
    """2 where a kept-alive connection had died, and a fresh one took its place."""

    async def aclose(self) -> None:
        """Let go of the connection: a whole answer's goes back to the pool, any other is closed at once."""
        await self.close()


class Transport(Protocol):
    """Sends requests. Raises `UpstreamUnreachable`, `UpstreamTimeout` or another `UpstreamError`."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Returns when the head of the answer is here. A cancelled call closes its connection at once."""

    async def aclose(self) -> None:
        """Close all connections."""


def is_bodyless(method: str, status: int, headers: Headers) -> bool:
    """Whether no body can follow this head (RFC 9112 §6.3)."""
    return method == "HEAD" or status in (204, 304) or find(headers, b"content-length") == b"0"


def check_status(status: int) -> int:
    """The status, if it can be passed on; raises UpstreamError for what is no final HTTP status (RFC 9110 §15)."""
    if not 200 <= status <= 599:
        raise UpstreamError(f"The upstream answered with the status {status}, which HTTP does not have.")
    return status


# --- which upstream ------------------------------------------------------------------------------------------------------


class Target(Struct, frozen=True):
    """Where a request goes."""

    name: str
    base_url: str
    api_key: str | None
    """Mneme's own key for this upstream; None: the client's `Authorization` goes on."""
    model_alias: str | None
    """The name this upstream knows the model by, where it is another than the client's."""
    placement: Placement
    simulated: bool = False
    stands_in: bool = False
    """Asked in place of another upstream, which failed."""
    send_reasoning: bool = False
    """Whether supplied history has the reasoning of answers after their tool loop has ended, too."""

    def __repr__(self) -> str:
        return f"Target({self.name!r}, {self.base_url!r})"  # without the key

    def url(self, raw_path: bytes, query: bytes) -> str:
        """The upstream's URL for `/v1/x?y`: its base URL and `/x?y`, without any re-encoding."""
        path = raw_path.removeprefix(API_PREFIX).decode("ascii")
        return f"{self.base_url}{path}?{query.decode('ascii')}" if query else f"{self.base_url}{path}"


class _Route(Struct, frozen=True):
    target: Target
    aliases: dict[str, str]
    names: re.Pattern[str] | None
    """None: any model, and requests without one."""
    fallbacks: tuple[str, ...] = ()

    def target_for(self, model: str | None) -> Target:
        """The target, with the name that it knows the model by."""
        alias = self.aliases.get(model) if model is not None else None
        return self.target if alias is None else replace(self.target, model_alias=alias)


class Router:
    """Knows which upstream serves which model. Decided once, at start."""

    def __init__(self, routes: list[_Route]) -> None:
        self._routes = routes

    @classmethod
    def from_settings(cls, settings: Settings) -> Router:
        """The upstreams configured; else OpenAI when OPENAI_API_KEY is set; else the simulated one.

        `MNEME_UPSTREAMS` come first, in their order; `MNEME_UPSTREAM_BASE_URL` serves what none of them does.
        Raises NotReady where there is none at all.
        """
        routes = [_route_of(route, settings) for route in settings.upstreams]
        key = settings.upstream_api_key.get_secret_value() if settings.upstream_api_key is not None else None
        back = settings.send_reasoning
        if settings.upstream_base_url is not None:
            last = Target(
                DEFAULT_UPSTREAM, settings.upstream_base_url, key, None, settings.placement, send_reasoning=back
            )
        elif routes:
            return cls(routes)
        elif settings.openai_api_key is not None:
            last = Target("openai", OPENAI_BASE_URL, key, None, settings.placement, send_reasoning=back)
        else:
            require("simulated", "Set MNEME_UPSTREAM_BASE_URL")
            last = Target("simulated", SIMULATED_BASE_URL, None, None, settings.placement, simulated=True)
        return cls([*routes, _Route(last, {}, None)])

    @property
    def targets(self) -> list[Target]:
        """All upstreams, in the order in which they are asked."""
        return [route.target for route in self._routes]

    def route(self, model: str | None) -> Target:
        """The upstream for a model: the first that has it as a name, an alias or a wildcard.

        A request that names no model goes to the one that serves all, else to the first. Raises NotFound.
        """
        if model is None:
            return next((route.target for route in self._routes if route.names is None), self._routes[0].target)
        for route in self._routes:
            if model in route.aliases or route.names is None or route.names.fullmatch(model):
                return route.target_for(model)
        raise NotFound(
            f"No upstream serves the model {model!r}: see MNEME_UPSTREAMS.", param="model", code="model_not_found"
        )

    def fallbacks(self, target: Target, model: str | None) -> list[Target]:
        """Whom to ask instead when `target` fails, in order.

        Only for requests that name a model: any other may speak of something that only one upstream has, such as a file.
        They keep the placement of `target`, for which the prompt was compiled.
        """
        names = next((route.fallbacks for route in self._routes if route.target.name == target.name), ())
        if model is None or not names:
            return []
        by_name = {route.target.name: route for route in reversed(self._routes)}
        stand_ins = (by_name[name].target_for(model) for name in names)
        return [replace(each, placement=target.placement, stands_in=True) for each in stand_ins]


def find_helper_endpoint(settings: Settings) -> HelperEndpoint | None:
    """Return where the helper LLM is: at its own URL, else at the upstream that serves its model; None where no model is named.

    A key goes only to the endpoint that it was given for. Raises NotReady for settings that lead to no endpoint.
    """
    model = settings.helper_model
    if not model:
        if settings.helper_base_url is not None:
            raise NotReady("MNEME_HELPER_BASE_URL is set, but not MNEME_HELPER_MODEL: name the model as well.")
        return None
    own_key = settings.helper_api_key.get_secret_value() if settings.helper_api_key is not None else None
    if settings.helper_base_url is not None:
        return HelperEndpoint(settings.helper_base_url, model, own_key)
    try:
        target = Router.from_settings(settings).route(model)
    except NotFound as error:
        raise NotReady(
            f"MNEME_HELPER_MODEL is {model!r}, which no upstream serves: set MNEME_HELPER_BASE_URL, or name a model of"
            " MNEME_UPSTREAMS."
        ) from error
    if target.simulated:
        raise NotReady(
            "MNEME_HELPER_MODEL is set, but there is no upstream to ask: set MNEME_UPSTREAM_BASE_URL, or"
            " MNEME_HELPER_BASE_URL."
        )
    key = own_key or target.api_key
    if key is None and target.base_url == OPENAI_BASE_URL and settings.openai_api_key is not None:
        key = settings.openai_api_key.get_secret_value()
    return HelperEndpoint(target.base_url, target.model_alias or model, key, target.name)


def _route_of(route: UpstreamRoute, settings: Settings) -> _Route:
    target = Target(
        route.name,
        route.base_url.rstrip("/"),
        route.api_key.get_secret_value() if route.api_key is not None else None,
        None,
        route.placement or settings.placement,
        send_reasoning=settings.send_reasoning if route.send_reasoning is None else route.send_reasoning,
    )
    names = "|".join(".*".join(re.escape(part) for part in name.split("*")) for name in route.models) or r"(?!)"
    pattern = None if "*" in route.models else re.compile(names, re.DOTALL)
    return _Route(target, route.aliases, pattern, tuple(route.fallbacks))
