"""The hooks of features: those of the base do nothing, several are asked in order, and two that answer for one are an error."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
from fastapi import APIRouter
from starlette.types import ASGIApp

import app.features
from app.errors import NotReady
from app.features import BY_NAME, FEATURES, ROUTES, Around, Feature, Features, load
from app.optional import imported
from app.settings import Settings

NOBODY: Any = MagicMock()
SETTINGS = Settings()


class Named(Feature):
    """Takes part by each hook, and says so."""

    def __init__(self, name: str, said: list[str]) -> None:
        super().__init__(SETTINGS)
        self.name = name
        self.said = said

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.said.append(f"{self.name} begins")
        yield
        self.said.append(f"{self.name} ends")

    @asynccontextmanager
    async def opened(self, process: Any) -> AsyncIterator[None]:
        self.said.append(f"{self.name} is opened")
        yield

    def knower(self, process: Any, pool: Any) -> Any:
        return None if self.name == "a" else f"knower of {self.name}"

    def hearing(self, process: Any) -> Any:
        return f"hearing of {self.name}" if self.name == "a" else None

    @asynccontextmanager
    async def mounts(
        self, authenticator: Any, api: ASGIApp, gateway: Any
    ) -> AsyncIterator[Mapping[str, Callable[[], ASGIApp]]]:
        yield {f"/{self.name}": lambda: api}
        self.said.append(f"{self.name} is closed")

    def routes(self, process: Any, gate: Any) -> Sequence[APIRouter]:
        return [APIRouter(prefix=f"/{self.name}")]

    def around(self) -> Any:
        return None if self.name == "a" else "around b"


async def test_all_are_asked_in_order() -> None:
    said: list[str] = []
    both = Features({name: Named(name, said) for name in ("a", "b")})
    async with (
        both.within(lambda each: each.running()),
        both.within(lambda each: each.opened(NOBODY)),
        both.within(lambda each: each.mounts(NOBODY, NOBODY, NOBODY)) as mounts,
    ):
        assert [list(own) for own in mounts] == [["/a"], ["/b"]]
        assert [each.prefix for each in both.all(lambda each: each.routes(NOBODY, NOBODY))] == ["/a", "/b"]
        found: list[Any] = [
            both.only(lambda each: each.knower(NOBODY, NOBODY)),
            both.only(lambda each: each.hearing(NOBODY)),
            both.around,
        ]
        assert found == ["knower of b", "hearing of a", "around b"]
    opened = ["a is opened", "b is opened"]
    assert said == ["a begins", "b begins", *opened, "b is closed", "a is closed", "b ends", "a ends"]


def test_two_that_answer_what_one_may() -> None:
    both = Features({name: Named("a", []) for name in ("one", "other")})
    with pytest.raises(NotReady, match="Only one feature can do this, and here are 2 that do: one, other"):
        both.only(lambda each: each.hearing(NOBODY))


async def test_the_base_leaves_the_core_as_it_is() -> None:
    base = Feature(SETTINGS)
    base.check()
    async with base.running(), base.opened(NOBODY), base.mounts(NOBODY, NOBODY, NOBODY) as mounts:
        assert mounts == {}
    several: list[Any] = [
        base.routes(NOBODY, NOBODY),
        base.gauges(NOBODY, NOBODY),
        base.ticks(NOBODY),
        base.own_metrics(NOBODY),
        base.elsewhere(NOBODY, NOBODY, NOBODY),
        await base.findings(None),
        base.jobs(NOBODY),
    ]
    assert not any(map(len, several))
    one = [
        base.around(),
        base.knower(NOBODY, NOBODY),
        base.hearing(NOBODY),
        base.admits(NOBODY, NOBODY, NOBODY),
        base.noting(NOBODY),
        base.cards(NOBODY, NOBODY),
        base.addon(NOBODY, NOBODY),
        base.keeper(NOBODY, NOBODY),
    ]
    assert one == [None] * len(one)
    core: Any = object()
    around = Features({"base": base}).around
    wraps: list[Callable[[Any], Any]] = [around.gateway, around.authenticator, around.transports, around.handlers]
    assert all(each(core) is core for each in wraps)
    await base.work(NOBODY, NOBODY)


def test_what_stands_around_the_core_is_put_there_by_one_hook() -> None:
    features = [type(each) for _, each in load(Settings(otel="on"))]
    own = {each.__name__: vars(each).keys() - vars(Feature).keys() for each in features}
    assert {name: methods for name, found in own.items() if (methods := found & vars(Around).keys())} == {}, (
        "never called"
    )


def test_settings_choose() -> None:
    assert list(dict(load(Settings(ui="off", mcp="off", otel="off", insights="off")))) == [
        "knowledge",
        "paging",
        "webhooks",
        "limits",
        "cards",
        "consolidation",
        "archive",
        "spool",
        "replicas",
        "transfer",
        "replay",
        "commands",
    ]
    assert list(dict(load(Settings(ui="on", mcp="on", otel="on")))) == list(FEATURES)


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.FEATURES", {"nowhere": "mcp"})
    assert list(load(Settings.model_construct(mcp="on", _fields_set=set()))) == []
    with pytest.raises(NotReady, match=r"MNEME_MCP: this installation has no app\.features\.nowhere"):
        load(Settings(mcp="on"))


def test_one_of_which_only_what_was_compiled_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "left_over" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr("app.optional.FEATURES", tmp_path)
    monkeypatch.setattr("app.features.FEATURES", {"left_over": "mcp"})
    assert list(load(Settings.model_construct(mcp="on", _fields_set=set()))) == []
    with pytest.raises(NotReady, match=r"MNEME_MCP: this installation has no app\.features\.left_over"):
        load(Settings(mcp="on"))


def test_one_that_is_there_though_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.FEATURES", {"ui": "ui", "mcp": "mcp", "nowhere": "paging"})
    monkeypatch.setattr("app.features.ALWAYS", {"ui", "nowhere"})
    assert list(dict(load(Settings(ui="off", mcp="off", paging="off")))) == ["ui"]
    with pytest.raises(NotReady, match=r"MNEME_PAGING: this installation has no app\.features\.nowhere"):
        load(Settings(paging="on"))


def test_one_that_misses_something_is_no_missing_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("app.features.FEATURES", {"broken": "ui"})

    class Broken(ModuleType):
        def FEATURE(self, settings: Settings) -> Feature:  # noqa: N802 - a class, in a real one
            raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")

    (tmp_path / "broken.py").touch()
    monkeypatch.setattr("app.optional.FEATURES", tmp_path)
    monkeypatch.setitem(sys.modules, "app.features.broken", Broken("app.features.broken"))
    with pytest.raises(ModuleNotFoundError, match="jinja2"):
        load(Settings.model_construct(ui="on", _fields_set=set()))


def test_what_the_core_finds_by_its_name_is_there() -> None:
    source = "".join(path.read_text() for path in Path(app.__path__[0]).rglob("*.py"))
    names = set(re.findall(r'(?:imported|needed|is_there|require)\("([\w.]+)"', source))
    assert {each.partition(".")[0] for each in names} <= {*FEATURES, *BY_NAME}
    assert None not in map(imported, names)


def test_routes_alone_are_loaded_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.ROUTES", (*ROUTES, "nowhere"))
    features = load(SETTINGS)
    assert features.absent == ["nowhere"]
    gate: Any = MagicMock()
    gate.router.side_effect = lambda *_, **__: APIRouter()
    alone = Features({}, routes=ROUTES)
    assert len(alone.routes(NOBODY, SETTINGS, gate)) == len(ROUTES)
    assert Features({}).routes(NOBODY, SETTINGS, gate) == []
