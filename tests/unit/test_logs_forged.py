"""What a client chooses stays within its field of a log line."""

import json
import logging

from app.logs import JsonFormatter, TextFormatter
from tests.support.tables import each_of

FORGED = "x\n22:00:00 error   forged\r\x1b[31m\u2028end"


@each_of("formatter", [TextFormatter(), JsonFormatter()])
def test_a_field_is_never_a_line_of_its_own(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("mneme.turn", logging.INFO, __file__, 1, "answered", (), None)
    record.model = FORGED
    line = formatter.format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    if isinstance(formatter, JsonFormatter):
        assert json.loads(line)["model"] == FORGED
    else:
        assert r"model=x\n22:00:00 error   forged\r\x1b[31m\u2028end" in line
