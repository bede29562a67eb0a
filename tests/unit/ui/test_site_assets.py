"""What the page brings along: one pinned library, and nothing from elsewhere."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import app.features.ui
from app.features.ui.rendering import asset, assets

HTMX_VERSION = "2.0.11"
HTMX_SHA256 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"
"""Of dist/htmx.min.js in npm's htmx.org, as it was published."""

HERE = Path(app.features.ui.__file__).parent


def test_htmx_is_the_published_file_with_its_licence() -> None:
    content = (HERE / "static" / "htmx.min.js").read_bytes()
    assert sha256(content).hexdigest() == HTMX_SHA256
    assert f'version:"{HTMX_VERSION}"'.encode() in content
    assert "Zero-Clause BSD" in (HERE / "static" / "htmx.LICENSE").read_text()


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    own = [
        *HERE.glob("styles/*.css"),
        *HERE.glob("templates/*.html"),
        *HERE.glob("static/mneme*"),
        *HERE.glob("static/shell*"),
    ]
    assert len(own) > 10
    for path in own:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"""(?:src|href|url\()=?["']?(?:https?:)?//""", text), path
        assert not re.search(r"\sstyle=|\son[a-z]+=|<script>|<style|javascript:|\|\s*safe\b", text), path


def test_an_asset_is_named_by_its_content() -> None:
    for name, (content, kind) in assets().items():
        assert asset(name) == f"/ui/static/{name}?v={sha256(content).hexdigest()[:12]}"
        assert kind in ("text/javascript", "text/css", "image/svg+xml")
    assert b"--paper" in assets()["mneme.css"][0]
