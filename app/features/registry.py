"""Which features there are, which of them the settings ask for, and how all of those are asked."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from app.errors import NotReady
from app.features import Around, Feature
from app.optional import imported, needed
from app.settings import Settings

log = logging.getLogger("mneme")

T = TypeVar("T")

FEATURES: Mapping[str, str | None] = {
    "tracing": "otel", "knowledge": "domains", "paging": "paging", "webhooks": "webhooks", "mcp": "mcp", "ui": "ui",
    "insights": "insights", "limits": "budget_without_database", "cards": "card_tools",
    "consolidation": "consolidation", "archive": "history_days", "spool": None, "replicas": None, "transfer": None,
    "outcomes": None, "replay": None, "calls": None, "chat": None, "preview": None, "conflicts": None,
    "facts": None, "overview": None, "commands": None,
}  # fmt: skip
"""Every feature by its folder, with the setting that leaves it out where it is `off`, and needs it where it is given otherwise;
None: no setting does. In this order they are asked."""
ALWAYS = frozenset({"paging", "consolidation"})
"""Those that are there though their setting is `off`: that is what holds where a request does not ask."""
NEEDED = {
    "helper_base_url": "helper", "database_history_url": "replicas", "database_memory_url": "replicas", "spool_dir": "spool",
    "spool_max_bytes": "spool", "archive_dir": "archive", "archive_days": "archive", "chat_learn_wait_ms": "chat",
}  # fmt: skip
"""Further settings, each with what it needs where it is given."""
BY_NAME = (
    "responses", "messages", "multilingual", "helper", "minilm", "embedded", "simulated", "reembed", "evaluate",
)  # fmt: skip
"""Those that have no hook: what needs one finds it by its name."""


class Features:
    """The features of a process, in their order, each asked by a hook of `Feature`."""

    def __init__(self, loaded: Mapping[str, Feature], absent: Sequence[str] = ()) -> None:
        """`absent`: those that this installation lacks."""
        self._loaded = dict(loaded)
        self.absent = absent

    def __iter__(self) -> Iterator[tuple[str, Feature]]:
        return iter(self._loaded.items())

    def all(self, hook: Callable[[Feature], Iterable[T]]) -> list[T]:
        """What they all have."""
        return [one for each in self._loaded.values() for one in hook(each)]

    def only(self, hook: Callable[[Feature], T | None]) -> T | None:
        """What the one feature has that has any. Raises NotReady where there are two: which of them took part would hang on
        their order."""
        made = {name: one for name, each in self._loaded.items() if (one := hook(each)) is not None}
        if len(made) > 1:
            raise NotReady(f"Only one feature can do this, and here are {len(made)} that do: {', '.join(made)}.")
        return next(iter(made.values()), None)

    @property
    def around(self) -> Around:
        """What the one feature puts around parts of the core that puts anything there."""
        return self.only(lambda each: each.around()) or Around()

    @asynccontextmanager
    async def within(self, hook: Callable[[Feature], AbstractAsyncContextManager[T]]) -> AsyncIterator[list[T]]:
        """What all of them have open; the last is closed first."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(hook(each)) for each in self._loaded.values()]


def load(settings: Settings) -> Features:
    """The features that the settings ask for. One whose folder is not there is left out.

    Raises NotReady where that is one that the settings name.
    """
    for setting, name in NEEDED.items():
        if setting in settings.model_fields_set and getattr(settings, setting):
            needed(name, f"MNEME_{setting.upper()}")
    wanted = [
        name for name, asks in FEATURES.items() if asks is None or name in ALWAYS or getattr(settings, asks) != "off"
    ]
    found = {name: _load(name, settings) for name in wanted}
    absent = [name for name, feature in found.items() if feature is None]
    return Features({name: feature for name, feature in found.items() if feature is not None}, absent)


def _load(name: str, settings: Settings) -> Feature | None:
    asks = FEATURES[name]
    given = asks is not None and asks in settings.model_fields_set and getattr(settings, asks) != "off"
    if (module := needed(name, f"MNEME_{asks}".upper()) if given else imported(name)) is not None:
        made: Feature = module.FEATURE(settings)
        return made
    log.info("a feature is not there", extra={"feature": name})
    return None
