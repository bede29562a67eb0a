"""What the doctor says of a spool that cannot be written and of upstreams that answer oddly."""

import asyncio
from pathlib import Path

from app.cli.doctor import _upstreams
from app.features import Finding
from app.features.spool.spool import findings
from app.settings import Settings
from tests.support.replies import reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.tables import each_of


def test_a_spool_that_cannot_be_written_is_no_empty_spool(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # root may write to any folder, but to none that is a file
    (finding,) = findings(Settings(spool_dir=tmp_path / "file" / "spool"))
    assert (finding.level, "cannot be written" in finding.what) == ("error", True)
    assert [each.level for each in findings(Settings(spool_dir=tmp_path / "new" / "spool"))] == ["ok"]
    assert not (tmp_path / "new").exists()


def _looked(settings: Settings) -> Finding:
    (found,) = asyncio.run(_upstreams(settings))
    return found


@each_of(
    ("status", "path", "level"),
    [
        ("200 OK", "/v1", "ok"),
        ("401 Unauthorized", "/v1", "ok"),
        ("404 Not Found", "/v1", "ok"),
        ("404 Not Found", "", "warning"),
        ("502 Bad Gateway", "/v1", "warning"),
    ],
)
def test_an_upstream_is_judged_by_what_it_answers(status: str, path: str, level: str) -> None:
    with ScriptedUpstream(reply_json({}, status)) as upstream:
        found = _looked(Settings(upstream_base_url=upstream.url.removesuffix("/v1") + path))
    assert found.level == level
    assert ("/v1 meant?" in found.mend) is (path == "")


def test_the_server_itself_is_no_upstream() -> None:
    found = _looked(Settings(port=9000, upstream_base_url="http://localhost:9000/v1"))
    assert (found.level, "is this server itself" in found.what) == ("error", True)
