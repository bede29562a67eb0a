"""A route under /api/v1 is built when it is first asked for, and behaves as any other."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from starlette.testclient import TestClient

from app.api.scope import LazyRoute


def make_app() -> tuple[FastAPI, LazyRoute]:
    async def read(number: int) -> dict[str, int]:
        return {"number": number}

    router = APIRouter(route_class=LazyRoute)
    router.add_api_route("/things/{number}", read, methods=["GET"])
    app = FastAPI()
    app.router.routes.extend(router.routes)
    (route,) = router.routes
    assert isinstance(route, LazyRoute)
    return app, route


def test_route_is_built_by_its_first_request_alone() -> None:
    app, route = make_app()
    client = TestClient(app)
    assert client.get("/elsewhere").status_code == 404
    assert "dependant" not in vars(route)
    assert client.get("/things/7").json() == {"number": 7}
    assert "dependant" in vars(route)
    assert client.get("/things/8").json() == {"number": 8}


def test_route_that_is_not_built_refuses_other_methods_and_bad_values() -> None:
    client = TestClient(make_app()[0])
    assert client.post("/things/7").status_code == 405
    assert client.get("/things/seven").status_code == 422


def test_openapi_document_has_a_route_that_is_not_built() -> None:
    assert "/things/{number}" in make_app()[0].openapi()["paths"]
