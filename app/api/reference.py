"""/docs: what there is under /api/v1, as one page without script, style sheet or any other asset.

FastAPI's own page loads its assets from another site; `/openapi.json` has everything, for whichever viewer one prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}code{background:#8882;padding:0 .2em}"
    "dt{margin-top:.5rem}dd{margin-left:1.5rem}summary{cursor:pointer}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_METHODS = ("get", "post", "put", "patch", "delete")


def reference_router() -> APIRouter:
    """GET /docs."""

    async def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(page(request.app.openapi()), headers={"content-security-policy": _POLICY})

    router = APIRouter()
    router.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)
    return router


def page(schema: Mapping[str, Any]) -> str:
    """An OpenAPI document as HTML, its operations by tag."""
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    groups: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method in _METHODS:
            if (operation := operations.get(method)) is not None:
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append("".join(_operation(method, path, operation)))
    parts = [f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in groups.items()]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>'
        "<p>Everything under <code>/v1</code> is the upstream’s own. The whole description, with all schemas: "
        f'<a href="openapi.json">openapi.json</a>.</p>{"".join(parts)}</html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<details><summary><code>{method.upper()} {escape(path)}</code></summary>"
    yield f"<p>{escape(operation.get('description') or operation.get('summary') or '')}</p><dl>"
    for each in operation.get("parameters", ()):
        needed = ", required" if each.get("required") else ""
        yield f"<dt><code>{escape(each['name'])}</code> ({escape(each['in'])}{needed})</dt>"
        yield f"<dd>{escape(each.get('description', ''))}</dd>"
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<dt>body, <code>{escape(kind)}</code></dt><dd>{escape(_shape(body.get('schema', {})))}</dd>"
    yield "</dl></details>"


def _shape(schema: Mapping[str, Any]) -> str:
    """What a schema is called."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_shape(each) for each in options)
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    return str(schema.get("title") or schema.get("type") or "")
