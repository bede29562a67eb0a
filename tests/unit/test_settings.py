import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.removed_settings import REMOVED_SETTINGS
from app.settings import KEY, SUPERVISOR, Settings, Unknown, find_removed_settings, unknown_names

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("MNEME_HOST", "MNEME_AUTH", "OPENAI_API_KEY", "MNEME_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def shown(value: object) -> str:
    if value is None:
        return "unset"
    return "none" if value in ({}, []) else str(value)


def test_the_page_names_every_setting_with_its_default_and_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| (.*?) \| .+ \|$", PAGE.read_text(), re.MULTILINE))
    fields = Settings.model_fields.items()
    assert rows == {
        str(field.validation_alias or f"MNEME_{name.upper()}"): shown(field.get_default(call_default_factory=True))
        for name, field in fields
    }
    assert all(field.description for _, field in fields)


@pytest.mark.parametrize(
    ("host", "auth", "mode"),
    [("127.0.0.1", None, "open"), ("::1", None, "open"), ("0.0.0.0", None, "keys"), ("10.0.0.1", "open", "open")],
)
def test_only_loopback_is_open_by_itself(host: str, auth: str | None, mode: str) -> None:
    assert Settings.model_validate({"host": host, "auth": auth}).auth_mode == mode


def test_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mneme.toml").write_text('port = 9000\nhost = "127.0.0.2"\n')
    monkeypatch.setenv("MNEME_PORT", "9001")
    settings = Settings()
    assert (settings.port, settings.host) == (9001, "127.0.0.2")


def test_the_way_around_a_pooler() -> None:
    pooled, direct = "postgresql://a@pgbouncer:6432/m", "postgresql://b@postgres:5432/m"
    assert Settings(database_url=pooled).direct(pooled) == pooled
    assert Settings(database_url=pooled, database_direct_url=direct).direct(pooled) == direct
    with pytest.raises(ValidationError, match="set that, too"):
        Settings(database_direct_url=direct)


def test_several_upstreams_come_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEME_UPSTREAMS", '[{"name": "a", "base_url": "http://a/v1", "api_key": "sk-secret"}]')
    route = Settings().upstreams[0]
    assert route.models == ["*"]
    assert "sk-secret" not in repr(Settings())


@pytest.mark.parametrize("wrong", [{"upstream_base_url": "ftp://x"}, {"port": 70000}, {"hash_partitions": 0}])
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_a_base_url_has_no_slash_at_its_end() -> None:
    assert Settings(upstream_base_url="http://x/v1/").upstream_base_url == "http://x/v1"


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://u:p@h:5432/d", "postgres://h/d", "postgresql:///d?host=/run", "postgresql://u@[::1]:5/d",
     "postgresql://a:1,b:2/d", "postgresql://u:a%2Fb@h/d"],
)  # fmt: skip
def test_a_database_url_that_can_be_read(dsn: str) -> None:
    assert Settings(database_url=dsn).database_url is not None


@pytest.mark.parametrize("dsn", ["nonsense", "mysql://h/d", "postgresql://u:se/cret@h/d", "postgresql://h:5 4/d"])
def test_a_database_url_that_cannot_be_read_is_not_quoted(dsn: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(database_url=dsn)
    (found,) = refused.value.errors()
    assert found["loc"] == ("database_url",)
    assert dsn not in found["msg"]
    assert "'se" not in found["msg"]


def test_names_that_no_setting_has_are_told_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MNEME_PORTT=1\nOTHER=2\nMNEME_HOST=127.0.0.1\n")
    (tmp_path / "mneme.toml").write_text('retrieval_deadline = 5\nport = 1\nPool_Size = 3\nopenai_api_key = "x"\n')
    environment = {"MNEME_TYPO": "1", "mneme_host": "h", "PATH": "p", "OPENAI_API_KEY": "k", SUPERVISOR: "7", KEY: "k"}
    found = unknown_names(environment, tmp_path)
    assert found == [
        Unknown("MNEME_TYPO", "the environment", None),
        Unknown("MNEME_PORTT", ".env", "MNEME_PORT"),
        Unknown("retrieval_deadline", "mneme.toml", "MNEME_RETRIEVAL_DEADLINE_MS"),
    ]
    assert found[0].told == "MNEME_TYPO in the environment is no setting."
    assert found[1].told == "MNEME_PORTT in .env is no setting. Is MNEME_PORT meant?"


def test_every_setting_is_known(tmp_path: Path) -> None:
    assert unknown_names({f"MNEME_{name.upper()}": "" for name in Settings.model_fields}, tmp_path) == [
        Unknown("MNEME_OPENAI_API_KEY", "the environment", "OPENAI_API_KEY")
    ]


def test_no_setting_is_both_there_and_removed() -> None:
    still_there = {"embedder_folder", "spool_segment_bytes"} & Settings.model_fields.keys()
    assert REMOVED_SETTINGS.keys() & Settings.model_fields.keys() == still_there


def test_a_removed_setting_is_told_from_an_unknown_one(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MNEME_POOL_TIMEOUT_MS=1\n")
    (tmp_path / "mneme.toml").write_text("Key_Cache_S = 0\nport = 1\n")
    environment = {"mneme_diversity": "0.7", "MNEME_TYPO": "1", "POOL_TIMEOUT_MS": "no name of ours"}
    assert [(found.name, found.source) for found in find_removed_settings(environment, tmp_path)] == [
        ("mneme_diversity", "the environment"), ("MNEME_POOL_TIMEOUT_MS", ".env"), ("Key_Cache_S", "mneme.toml"),
    ]  # fmt: skip
    assert unknown_names(environment, tmp_path) == [Unknown("MNEME_TYPO", "the environment", None)]


def test_each_removed_setting_says_what_holds_instead_and_names_only_settings_that_are_there() -> None:
    names = {f"MNEME_{name.upper()}" for name in Settings.model_fields}
    for name, instead in REMOVED_SETTINGS.items():
        assert instead.endswith("."), name
        assert set(re.findall(r"MNEME_[A-Z_]+", instead)) <= names, name
