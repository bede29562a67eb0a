"""The pages of docs/ that are made from the code: the API, the commands, the metrics.

`python -m tools.reference`, or `make docs`, writes them; tests/unit/test_reference_pages.py fails where one is stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from app.api.common import add_routes, install_errors
from app.api.probes import Probes
from app.cli import main as mneme
from app.features import load
from app.metrics import Metrics
from app.server.routes import open_routes
from app.settings import Settings

DOCS = Path(__file__).parents[1] / "docs" / "generated"
MADE = "Made from the code by `make docs`. Do not edit.\n"
METHODS = ("get", "post", "put", "patch", "delete")
TOLD_ONCE = frozenset({"X-Mneme-User", "limit", "cursor"})
"""Parameters that the page's head tells of, for all operations."""

API_HEAD = f"""# The API

{MADE}
What Mneme answers itself: `/api/v1`, and the four paths of operation. Everything under `/v1` is the upstream's own API, with
memory in `/v1/chat/completions` and `/v1/responses`; `/mcp` is in [mcp.md](../how-to/mcp.md), `/ui` in
[ui.md](../how-to/ui.md). A running server has this page at `/docs`, and as OpenAPI at `/openapi.json`.

For all of `/api/v1`:

- **Key.** `Authorization: Bearer mneme_…` or `X-Mneme-Key`; on loopback none is needed. A key sees its tenant, or, made for one
  user, that user. `GET /api/v1/me` says who one is.
- **User.** `X-Mneme-User`, where path and body name none.
- **Lists** take `limit` (1 to 1,000) and `cursor`, and answer with their rows and `next`: the next page's cursor, or null.
- **Errors** have OpenAI's shape, `{{"error": {{"message", "type", "param", "code"}}}}`: 400 for what is wrong with a request,
  401 without a valid key, 403 for what a key may not, 404, 409 for what contradicts what is there, 413, 429 beyond a limit,
  503 while the database is away.
- **Bodies** are JSON; a member that is not in its table is a 400 that names it. Members without a default are required.
"""


# --- the API -------------------------------------------------------------------------------------------------------------


def api() -> str:
    """docs/generated/api.md."""
    schema = openapi()
    groups: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if (operation := operations.get(method)) is not None:
                groups.setdefault((operation.get("tags") or ["other"])[0], []).extend(
                    _operation(f"{method.upper()} {path}", operation, schema["components"]["schemas"])
                )
    shapes = dict(sorted(schema["components"]["schemas"].items()))
    parts = [API_HEAD, *(f"## {tag.capitalize()}\n\n" + "\n".join(lines) for tag, lines in sorted(groups.items()))]
    parts += ["## Shapes\n", *("\n".join(_shape(name, each)) for name, each in shapes.items())]
    return "\n".join(parts)


def openapi() -> dict[str, Any]:
    """The schema of all routes. Nothing stands behind them: to wire them asks nobody."""
    app = FastAPI(title="Mneme")
    install_errors(app)
    nobody = MagicMock()
    settings = Settings.model_construct()
    core, probes = MagicMock(settings=settings), Probes({}, nobody)
    for router in open_routes(core, nobody, nobody, probes, None, load(settings)):
        add_routes(app, router)
    return app.openapi()


def _operation(name: str, operation: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{name}`\n"
    yield f"{_prose(operation['description'])}\n"
    parameters = operation.get("parameters", ())
    if told := [each for each in parameters if each["name"] not in TOLD_ONCE]:
        yield from _table(
            ("parameter", "in", "type", "meaning"),
            ((f"`{each['name']}`", each["in"], *_cells(each["schema"], each.get("required"))) for each in told),
        )
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body{_content(kind)}: {_type(body['schema'])}\n"
        if (found := shapes.get(_name(body["schema"]))) is not None:
            yield from _members(found)
    listed = ", in pages" if any(each["name"] == "cursor" for each in parameters) else ""
    answers = [
        f"{status} {_type(content['schema'])}{_content(kind)}" if content.get("schema") else f"{status}{_content(kind)}"
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for kind, content in (answer.get("content") or {"": {}}).items()
    ]
    yield f"Answer: {' · '.join(answers)}{listed}\n"


def _shape(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield f"{_prose(schema['description'])}\n"
    if "properties" in schema:
        yield from _members(schema)
    else:
        yield f"{_type(schema)}\n"


def _members(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    rows = ((f"`{name}`", *_cells(each, name in required)) for name, each in schema.get("properties", {}).items())
    return _table(("member", "type", "meaning"), rows)


def _cells(schema: Mapping[str, Any], required: bool | None) -> tuple[str, str]:
    """The type and the meaning; what has a default is not required."""
    default = "" if required else f" = `{json.dumps(schema.get('default'), ensure_ascii=False)}`"
    return f"{_type(schema)}{default}", _prose(schema.get("description", ""))


def _type(schema: Mapping[str, Any]) -> str:
    """A schema as a reader wants it."""
    if name := _name(schema):
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(each) for each in options)
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            inner = schema.get("additionalProperties")
            return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
        case None:
            return "anything"
        case kind:
            return str(schema.get("format", kind)) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if low is not None and high is not None:
        return f" {_figure(low)}–{_figure(high)}"
    if low is not None:
        return f" ≥ {_figure(low)}"
    return f" ≤ {schema['maxLength']:,} chars" if "maxLength" in schema else ""


def _figure(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _content(kind: str) -> str:
    return "" if kind in ("", "application/json") else f" as `{kind}`"


# --- the commands --------------------------------------------------------------------------------------------------------


def commands() -> str:
    """docs/generated/commands.md."""
    head = (
        f"# The command `mneme`\n\n{MADE}\n"
        "Every command takes `--help`, and exits with 0, 1 (it failed) or 2 (wrong use); `--json` is for programs. Settings\n"
        "are the server's: [settings.md](../reference/settings.md).\n"
    )
    return "\n".join([head, *_command(mneme, "mneme", None)])


def _command(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    group = command if isinstance(command, click.Group) else None
    if parent is not None:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield f"## `{usage}`\n"
        yield f"{_prose(command.help or '')}\n"
        records = (each.get_help_record(context) for each in command.get_params(context))
        if rows := [(f"`{told[0]}`", _prose(told[1])) for told in records if told and "--help" not in told[0]]:
            yield from _table(("option", "meaning"), rows)
    for each in group.list_commands(context) if group is not None else []:
        if group is not None and (inner := group.resolve_command(context, [each])[1]) is not None:
            yield from _command(inner, each, context)


# --- the metrics ---------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """docs/generated/metrics.md."""
    head = (
        f"# Metrics\n\n{MADE}\n"
        "`GET /metrics` has these, and prometheus-client's own of the process (`process_…`, `python_gc_…`). Labels are names\n"
        "of the code's and of the settings', never a client's: their number is bounded. What to watch, and which alert looks\n"
        "at what, is in [operations.md](../how-to/operations.md#what-to-watch).\n"
    )
    registry = CollectorRegistry()
    found = [each for each in vars(Metrics(registry)).values() if isinstance(each, MetricWrapperBase)]
    found += load(Settings()).all(lambda each: each.own_metrics(registry))
    rows = []
    for each in found:
        (described,) = each.describe()
        name = described.name + ("_total" if described.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in each._labelnames)  # not told in public
        rows.append((f"`{name}`", described.type, labels, _prose(described.documentation)))
    return "\n".join([head, *_table(("metric", "type", "labels", "meaning"), sorted(rows))])


# --- both ----------------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def _prose(text: str) -> str:
    """One line, in which nothing but code looks like a tag."""
    parts = " ".join(text.split()).split("`")
    return "`".join(each if n % 2 else re.sub(r"<(?=[a-zA-Z/])", "&lt;", each) for n, each in enumerate(parts))


PAGES: Mapping[str, Callable[[], str]] = {"api.md": api, "commands.md": commands, "metrics.md": metrics}


def main() -> None:
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())


if __name__ == "__main__":
    main()
