"""`mneme keys create --user` refuses a value that names nobody, because all users would share its key."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from app.cli.keys import keys


@pytest.mark.parametrize("name", ["", " ", "undefined", "{{user}}", "u" * 513])
def test_a_user_who_is_nobody_is_refused_before_anything_is_opened(name: str) -> None:
    refused = CliRunner().invoke(keys, ["create", "laptop", "--user", name])
    assert refused.exit_code == 2
    assert "--user" in refused.output
    assert "the user" in refused.output
