"""One real server for each module, on a database of its own, before one scripted upstream.

A module says what it needs by overriding `settings`, `worker` or `script`; a test that ends its server takes
`own_server` instead.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.clients import Api
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

LOG_LINES = 20


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its server complained about."""
    report = yield
    if report.failed:
        given = list(getattr(item, "funcargs", {}).values())
        servers = [each for each in given if isinstance(each, MnemeServer)]
        servers += [server for each in given if isinstance(each, OwnServers) for server in each.servers]
        for server in servers:
            lines = [line for line in server.logs if line.get("level") not in ("debug", "info")][-LOG_LINES:]
            told = "\n".join(f"{line.get('message', line)}\n{line.get('error', '')}" for line in lines)
            report.sections.append(("the server's complaints", told))
    return report


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """Environment variables of the module's server."""
    return {}


@pytest.fixture(scope="module")
def worker(request: pytest.FixtureRequest) -> bool:
    """Whether the module's server has a worker: where it says `WORKER = True`."""
    return getattr(request.module, "WORKER", False)


@pytest.fixture(scope="module")
def script() -> Script:
    """What the module's upstream answers, unless a test changes it."""
    return chat_script(lambda asked: "All right.")


@pytest.fixture(scope="module")
def module_upstream(script: Script) -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(script) as upstream:
        yield upstream


@pytest.fixture
def upstream(module_upstream: ScriptedUpstream, script: Script) -> ScriptedUpstream:
    """The module's upstream, with nothing recorded and the module's script."""
    module_upstream.script = script
    module_upstream.requests.clear()
    return module_upstream


@pytest.fixture(scope="module")
def mneme(
    tmp_path_factory: pytest.TempPathFactory,
    module_database: str,
    module_upstream: ScriptedUpstream,
    settings: dict[str, str],
    worker: bool,
) -> Iterator[MnemeServer]:
    """The module's server."""
    folder = tmp_path_factory.mktemp("mneme")
    with MnemeServer(
        folder, database=module_database, upstream=module_upstream.url, worker=worker, settings=settings
    ) as server:
        yield server


@pytest.fixture
def api(mneme: MnemeServer) -> Api:
    """The module's server's own API, as the local user."""
    return Api(mneme)


class OwnServers:
    """Starts servers of a test's own, on its own fresh database; used as `own_server(upstream.url, NAME="value", …)`."""

    def __init__(self, folder: Path, database: str) -> None:
        self.servers: list[MnemeServer] = []
        self._folder = folder
        self._database = database

    def __call__(self, upstream: str | None, *, worker: bool = False, **settings: str) -> MnemeServer:
        folder = self._folder / f"mneme-{len(self.servers)}"
        server = MnemeServer(folder, database=self._database, upstream=upstream, worker=worker, settings=settings)
        self.servers.append(server)
        server.start()
        return server


@pytest.fixture
def own_server(tmp_path: Path, database: str) -> Iterator[OwnServers]:
    """Servers for a test that ends them."""
    starting = OwnServers(tmp_path, database)
    try:
        yield starting
    finally:
        for server in starting.servers:
            server.drop()
