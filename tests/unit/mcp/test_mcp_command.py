"""What the commands say where the SDK is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.cli import main
from app.errors import NotReady
from app.features.mcp import check_sdk
from tests.support.tables import each_of


def test_the_sdk_is_there() -> None:
    check_sdk()


@pytest.mark.parametrize("command", ["mcp", "serve"])
def test_without_the_sdk_it_is_told_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MNEME_MCP", "on")
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not there
    with pytest.raises(NotReady, match="pip install"):
        check_sdk()
    done = CliRunner().invoke(main, [command])
    assert done.exit_code == 1
    assert done.output == "Error: The MCP server needs the MCP SDK: pip install 'mneme-proxy[mcp]'.\n"
    assert not list(tmp_path.iterdir())  # nothing was begun


@each_of(
    ("arguments", "wrong"),
    [
        (["--base", "127.0.0.1:8080"], "--base"),
        (["--base", "http://"], "--base"),
        (["--key", "mneme_a\nb"], "--key"),
        (["--key", "mneme_ä"], "--key"),
        (["--user", "\udcff"], "--user"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], wrong: str) -> None:
    done = CliRunner().invoke(main, ["mcp", *arguments])
    assert done.exit_code == 2
    assert f"Invalid value for {wrong}" in done.output
    assert "mneme_a" not in done.output
