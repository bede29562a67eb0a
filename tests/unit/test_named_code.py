"""Names on documentation pages must be defined in the file that the page gives; a mention is not enough."""

from __future__ import annotations

from tests.support.named_code import find_missing
from tests.support.tables import each_of

THERE = (
    "`app/context/budget.py:available`",
    "`app/context/budget.py:allocate`, `tests/unit/context/test_budget.py::test_tools`",
    "`app/context/score.py:STRATEGY_WEIGHTS`",
    "`app/store/validation.py:Validation.settle`",
    "`app/settings.py:history_partitions`",
    "`app/metrics.py:observe_utilisation`",
    "`sql/schema/004_lifecycle.sql:utility`",
    "`sql/schema/003_memory.sql:memory_store_working`",
    "`sql/schema/003_memory.sql:use_level`",
    "`sql/schema/004_lifecycle.sql:l2_ttl_days`",
    "`sql/schema/016_views.sql:seed_001.ai_memory`",
    "`sql/queries/entities.sql:learn`",
    "`deploy/prometheus/rules.yml:PostgresReplicaLags`",
    "`deploy/prometheus/postgres-queries.yaml:hottest_ratio`",
    "`python -m loadtests.wal`, `python -m loadtests.worth`",
    "`MNEME_HISTORY_DAYS`, `MNEME_EMBEDDER…`",
    "`GET /api/v1/calls/{id}/context`",
    "`mneme_stage_seconds`",
    "(docs/explanation/recall.md)",
)
NOT_THERE = (
    ("`app/context/budgets.py:available`", "no such file"),
    ("`app/gateway/finalize.py:session_ttl`", "a parameter"),
    ("`app/context/retrieve.py:FurtherItems`", "imported from elsewhere"),
    ("`app/memory/episodes.py:procedures`", "mentioned, and defined in another module"),
    ("`app/memory/claims.py:Trust.reply_to`", "a function of the module, not of the class"),
    ("`app/context/budget.py:test_tools`", "a test"),
    ("`tests/unit/context/test_budget.py::test_tool`", "the beginning of a test's name"),
    ("`sql/schema/004_lifecycle.sql:p_user`", "a parameter"),
    ("`sql/schema/004_lifecycle.sql:seed`", "a word of a comment"),
    ("`sql/queries/entities.sql:look_up_mentions`", "called there"),
    ("`deploy/prometheus/rules.yml:mneme_schedule_last_run_seconds`", "a word of an expression"),
    ("`python -m loadtests.figures`", "a module that runs nothing"),
    ("`python -m loadtests.nothing`", "no module"),
    ("`MNEME_HISTORY_DAY`", "the beginning of a setting"),
    ("`GET /api/v1/calls/{id}/contexts`", "no such path"),
    ("`PUT /api/v1/calls/{id}/context`", "another method"),
    ("`mneme_stage_second`", "no metric"),
    ("(docs/explanation/remember.md)", "no page"),
)


@each_of("text", THERE)
def test_what_is_defined_is_found(text: str) -> None:
    assert find_missing(text) == []


@each_of("text, why", NOT_THERE)
def test_what_is_not_defined_there_is_named(text: str, why: str) -> None:
    assert len(find_missing(text)) == 1, why
