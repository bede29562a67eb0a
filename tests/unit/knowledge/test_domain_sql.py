"""The SQL that is made from an ontology: names quoted, values bound, one SELECT."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from app.context.question import TimeSpan
from app.features.knowledge.domain_sql import (
    DomainColumn,
    Table,
    by_key,
    by_name,
    escape_like,
    joinable,
    moments,
    no_longer_than,
    quoted,
    quoted_table,
    related,
    split_table,
    wanted_columns,
)
from app.features.knowledge.ontology import EntityType, Relation
from tests.support.tables import each_of

HOSTILE = 'x"; DROP TABLE customers; --'


def kind(**given: object) -> EntityType:
    fields: dict[str, object] = {
        "name": "customer", "domain": "erp", "table": "domain.customers", "key": "id", "title": "name", "label": "{name}",
    }  # fmt: skip
    return EntityType(**(fields | given))  # type: ignore[arg-type]


def table(**columns: str) -> Table:
    return Table(
        {name: DomainColumn(name, each.removesuffix("[]"), each.endswith("[]")) for name, each in columns.items()}
    )


SEPTEMBER = TimeSpan(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))


def test_a_row_by_its_key_casts_the_value_and_not_the_column() -> None:
    made = by_key(kind(show=("status",)), table(id="int4", name="varchar", status="text"), ["1", "x", "2"])
    assert made.sql == (
        'SELECT 1 AS total, NULL AS parent, t."id"::text AS key, left(t."name"::text, 201) AS c0,'
        ' left(t."status"::text, 201) AS c1 FROM "domain"."customers" AS t WHERE t."id" = ANY ($1::text[]::bigint[]) LIMIT 4'
    )
    assert made.args == (["1", "2"],)
    assert made.columns == ("name", "status")


@each_of(
    ("type_", "keys", "fit", "cast"),
    [
        ("int8", ["12", "-3", "1" * 19, "1.5", "١"], ["12", "-3"], "::text[]::bigint[]"),
        ("numeric", ["1.50", "1e3", "NaN"], ["1.50"], "::text[]::numeric[]"),
        ("uuid", ["00000000-0000-0000-0000-000000000001", "x"], ["00000000-0000-0000-0000-000000000001"], "::uuid[]"),
        ("text", ["a", "", "a\0b", "y" * 201], ["a"], '"id" = ANY ($1::text[]::text[])'),
        ("bpchar", ["a"], ["a"], '::text[]::"bpchar"[]'),
        ("citext", ["a"], ["a"], '"id"::text = ANY ($1::text[])'),
        ("my_enum", ["a"], ["a"], '"id"::text = ANY ($1::text[])'),
    ],
)
def test_a_text_that_cannot_be_a_key_is_left_out(type_: str, keys: list[str], fit: list[str], cast: str) -> None:
    made = by_key(kind(), table(id=type_, name="text"), keys)
    assert made.args == (fit,)
    assert cast in made.sql


def test_names_are_found_whole_or_in_part_with_nothing_of_theirs_in_the_sql() -> None:
    columns = table(id="text", name="text", short="varchar")
    exact = by_name(kind(also=("short",)), columns, [HOSTILE, "100%_\\"], exact=True)
    part = by_name(kind(also=("short",)), columns, [HOSTILE, "100%_\\"], exact=False)
    assert exact.args == ([HOSTILE, "100%_\\"],)
    assert part.args == ([f"%{HOSTILE}%".replace("_", "\\_"), "%100\\%\\_\\\\%"],)
    assert "DROP" not in exact.sql + part.sql
    assert 'lower(t."short"::text) = lower(w.mention) OR lower(t."id"::text) = lower(w.mention)' in exact.sql
    assert 't."id"::text ILIKE' not in part.sql


def test_hostile_names_stay_names() -> None:
    """What an ontology may say, which is an operator's: still a name is a name."""
    evil = kind(
        table=f"domain.{HOSTILE}", key=HOSTILE, title=HOSTILE, label="{" + HOSTILE + "}", show=(HOSTILE,), time=HOSTILE
    )
    catalog = Table({HOSTILE: DomainColumn(HOSTILE, "date")})
    relation = Relation("erp", "a", "has", "b", "one_to_many", "", ((HOSTILE, HOSTILE),))
    for made in (
        by_key(evil, catalog, ["2024-01-01"]),
        by_name(evil, catalog, ["x"], exact=True),
        by_name(evil, catalog, ["x"], exact=False),
        related(evil, catalog, relation, evil, catalog, ["x"], backwards=False, span=SEPTEMBER, limit=5),
    ):
        bare = re.sub(r'"(?:[^"]|"")*"', "", made.sql)
        assert "DROP" not in bare
        assert ";" not in bare
        assert "--" not in bare
        assert made.sql.startswith("SELECT ")


def test_what_a_relation_leads_to_is_bounded_in_time_and_rows_and_newest_first() -> None:
    order = kind(name="sales_order", table="orders", key="so_id", title="so_id", time="at")
    relation = Relation("erp", "customer", "has", "sales_order", "one_to_many", "", (("id", "customer_id"), ("r", "r")))
    columns = table(so_id="text", customer_id="text", r="text", at="timestamptz")
    made = related(
        kind(), table(id="text", name="text", r="text"), relation, order, columns, ["c"],
        backwards=False, span=SEPTEMBER, limit=20,
    )  # fmt: skip
    assert 'JOIN "orders" AS t ON t."customer_id" = s."id" AND t."r" = s."r"' in made.sql
    assert 't."at" >= $2::text::timestamptz AND t."at" < $3::text::timestamptz' in made.sql
    assert 'ORDER BY t."at" DESC NULLS LAST, t."so_id" LIMIT 1001' in made.sql
    assert made.sql.endswith("LIMIT 20")
    assert made.args == (["c"], "2024-09-01T00:00:00+00:00", "2024-10-01T00:00:00+00:00")
    back = related(
        order, columns, relation, kind(), table(id="int4", name="text", r="text"), ["SO-1"],
        backwards=True, span=SEPTEMBER, limit=1,
    )  # fmt: skip
    assert 't."id"::text = s."customer_id"::text AND t."r" = s."r"' in back.sql
    assert back.args == (["SO-1"],)


def test_a_span_in_the_columns_own_terms() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    span = TimeSpan(datetime(2024, 9, 1, tzinfo=zone), datetime(2024, 10, 1, tzinfo=zone))
    assert moments(span, "date") == ("2024-09-01", "2024-10-01")
    assert moments(span, "timestamp") == ("2024-09-01T00:00:00", "2024-10-01T00:00:00")
    assert moments(span, "timestamptz") == ("2024-09-01T00:00:00+05:30", "2024-10-01T00:00:00+05:30")
    assert moments(TimeSpan(None, datetime(2024, 9, 1, 12, tzinfo=zone)), "date") == (None, "2024-09-02")
    assert moments(None, "date") == (None, None)


@each_of(
    ("one", "other", "fits"),
    [("text", "varchar", True), ("int4", "int8", True), ("int4", "numeric", True), ("text", "int4", False),
     ("my_enum", "my_enum", True), ("my_enum", "other", False), ("uuid", "text", False), ("int4[]", "int4", False)],
)  # fmt: skip
def test_which_columns_postgres_compares(one: str, other: str, fits: bool) -> None:
    columns = table(a=one, b=other)
    assert joinable(columns.columns["a"], columns.columns["b"]) is fits


def test_what_is_read_of_a_row_is_read_once() -> None:
    predicates = {"p": "status", "q": "z"}
    found = kind(also=("name", "short"), label="{no} {name}", show=("status", "no"), time="at", predicates=predicates)
    assert wanted_columns(found) == ("name", "no", "short", "status", "at", "z")


def test_a_column_that_is_gone_is_not_asked_for() -> None:
    assert by_key(kind(show=("gone", "status")), table(id="text", status="bool"), ["a"]).columns == ("status",)


def test_tables_have_a_schema_or_not() -> None:
    assert (split_table("a.b"), split_table("b")) == (("a", "b"), (None, "b"))
    assert (quoted_table('a."b'), quoted_table("B")) == ('"a"."""b"', '"B"')
    assert no_longer_than(500) == "SET LOCAL statement_timeout = 500"


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_name_ends_where_its_quote_ends(name: str) -> None:
    inner = quoted(name)[1:-1]
    assert '"' not in inner.replace('""', "")
    assert inner.replace('""', '"') == name


@given(st.text())
def test_like_takes_an_escaped_text_for_itself(text: str) -> None:
    escaped = escape_like(text)
    assert re.sub(r"\\(.)", r"\1", escaped, flags=re.DOTALL) == text
    assert not re.search(r"[%_]", re.sub(r"\\.", "", escaped, flags=re.DOTALL))
