"""Overview, jobs, keys and settings: what they show, what they do, and to whom."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import asyncpg
from msgspec.structs import replace

from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import Tenancy
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture
from tests.support.cases import cases
from tests.support.rows import insert_row, read_jobs, update_rows
from tests.support.ui_forms import post, sign_in
from tests.support.ui_page import Page

HOSTILE = "<script>alert(1)</script>\"'&" + "x" * 100


def plain(text: str) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


# --- overview --------------------------------------------------------------------------------------------------------------


async def test_the_overview_of_nothing_says_how_to_begin(page: Page) -> None:
    async with page.browser() as client:
        text = (await client.get("/ui")).text
        assert "Nothing was called yet" in text
        assert "curl http://127.0.0.1:8080/v1/chat/completions" in text
        assert "authorization" not in text
        assert "<polyline" not in text


async def test_the_overview_of_calls(page: Page, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    turns, now = TurnStore(pool, Queries.load()), page.api.clock.now()
    for n in range(30):
        await capture(turns, CapturedCall(now - timedelta(minutes=2 * n), user=HOSTILE, latency_ms=100 + n))
    await capture(turns, CapturedCall(now, status=500))
    await update_rows(admin, "upstream_calls", {"status": 500}, memory_status="degraded", reason="dead<line")
    async with page.browser() as client:
        text = (await client.get("/ui", params={"hours": 1})).text
        assert "Nothing was called yet" not in text
        assert "<script>alert" not in text
        assert "dead&lt;line" in text
        for title in (
            "Calls",
            "Tokens",
            "Our overhead",
            "First byte",
            "Whole answer",
            "Degraded calls, by reason",
            "Storage",
        ):
            assert f">{title}</h2>" in text
        assert re.search(r'aria-label="Calls: \d+ calls, 1 of them failed"', text)
        assert text.count("As a table") == 6
        assert len(re.findall(r'<th scope="row"><a href="/ui/calls/', text)) == 8
        assert 'hx-trigger="every 10s"' in text
        assert "style=" not in text
        part = await client.get("/ui", params={"hours": 1}, headers={"hx-request": "true"})
        assert "<html" not in part.text
        assert ">Tokens</h2>" in part.text
        paused = (await client.get("/ui", params={"live": "off", "hours": "x", "user": "nobody"})).text
        assert "hx-get" not in paused
        assert 'aria-current="page">24 hours' in paused
        assert "Only the user <strong>nobody</strong>" in paused


# --- jobs ------------------------------------------------------------------------------------------------------------------


async def dead_letter(admin: asyncpg.Connection[Any], tenant: Any, error: str) -> int:
    dead: dict[str, Any] = {"priority": 0, "entrypoint": "learn", "status": "failed"}
    payload = f'{{"tenant": "{tenant}", "user": "<b>"}}'.encode()
    await insert_row(admin, "pgqueuer", payload=payload, attempts=5, **dead)
    job: int = (await read_jobs(admin))[-1]["id"]
    await insert_row(admin, "pgqueuer_log", job_id=job, traceback=json.dumps({"exception_message": error}), **dead)
    return job


async def test_a_dead_letter_is_told_and_tried_again(page: Page, admin: asyncpg.Connection[Any]) -> None:
    async with page.browser() as client:
        assert "Nothing failed for good." in (await client.get("/ui/jobs")).text
        job = await dead_letter(admin, LOCAL_TENANT, HOSTILE * 3)
        text = (await client.get("/ui/jobs")).text
        assert f"Retry job {job}" in text
        assert "<script>alert" not in text
        assert "&lt;b&gt;" in text
        answer = await post(client, f"/ui/jobs/{job}/retry")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs")
        after = (await client.get("/ui/jobs")).text
        assert f"Job {job} is tried again." in after
        assert "Nothing failed for good." in after
        assert f"Job {job} is tried" not in (await client.get("/ui/jobs")).text, "said once"
        assert (await post(client, f"/ui/jobs/{job}/retry")).status_code == 404
        assert (await post(client, "/ui/jobs/x%2Fy/retry")).status_code == 400


# --- keys ------------------------------------------------------------------------------------------------------------------


async def test_a_key_from_its_making_to_its_end(page: Page) -> None:
    tenancy: Tenancy = page.api.tenancy
    async with page.browser() as client:
        assert "No keys yet." in (await client.get("/ui/keys")).text
        answer = await post(
            client, "/ui/keys", name=HOSTILE, user="ana", scopes=["read", "proxy"], requests_per_minute="60",
            money_budget_usd="2.5", money_period="day", models="gpt-4o\n o3* \n", paging="on",
        )  # fmt: skip
        assert answer.status_code == 200
        (key,) = re.findall(r'value="(mneme_[^"]+)"', answer.text)
        assert "<script>alert" not in answer.text
        (row,) = await tenancy.list_keys()
        assert (row.user_external_id, sorted(row.scopes)) == ("ana", ["proxy", "read"])
        assert (row.limits.requests_per_minute, row.limits.money_budget, row.limits.money_period) == (
            60,
            250_000_000,
            "day",
        )
        assert (row.limits.models, row.limits.capture, row.limits.paging) == (("gpt-4o", "o3*"), False, True)
        assert key.startswith(row.hint)
        for path in ("/ui/keys", f"/ui/keys/{row.key_id}", "/ui"):
            text = (await client.get(path)).text
            assert key not in text
        assert key not in str(client.cookies)
        shown = plain((await client.get("/ui/keys")).text)
        assert "60 requests/min, $2.50/day, 2 models, no capture, paging on not in 30 days 0" in shown
        form = (await client.get(f"/ui/keys/{row.key_id}")).text
        assert 'name="requests_per_minute" min="0" step="1" value="60"' in form
        answer = await post(client, f"/ui/keys/{row.key_id}", requests_per_minute="", capture="on", token_budget="9000")
        assert answer.headers["location"] == "/ui/keys"
        (row,) = await tenancy.list_keys()
        assert (row.limits.requests_per_minute, row.limits.token_budget, row.limits.capture) == (None, 9000, True)
        answer = await post(client, f"/ui/keys/{row.key_id}/revoke")
        assert answer.status_code == 303
        assert "revoked" in plain((await client.get("/ui/keys")).text)
        assert "Save" not in (await client.get(f"/ui/keys/{row.key_id}")).text
        assert (await post(client, f"/ui/keys/{row.key_id}/revoke")).status_code == 404


@cases(
    ("field", "value"),
    [
        ("requests_per_minute", "many"), ("requests_per_minute", "-1"), ("token_budget", "1e99"), ("money_budget_usd", "nan"),
        ("expires_at", "2001-01-01T00:00"), ("expires_at", "soon"), ("name", " "), ("token_period", "week"), ("scopes", "root"),
        ("requests_per_minute", "9" * 400),
    ],
)  # fmt: skip
async def test_a_form_that_says_nonsense_comes_back_with_words(page: Page, field: str, value: str) -> None:
    async with page.browser() as client:
        fields = {"name": "app", "models": "a&b", field: value}
        answer = await post(client, "/ui/keys", **fields)
        assert answer.status_code == 400
        assert 'role="alert"' in answer.text
        assert "a&amp;b" in answer.text, "what was typed stays"
        assert await page.api.tenancy.list_keys() == []


async def test_last_use_and_cost(page: Page, pool: Pool) -> None:
    _, row = await page.api.tenancy.create_key("local", "app")
    async with page.browser() as client:
        now = page.api.clock.now()
        record = CapturedCall(now).record()
        record = replace(record, call=record.call._replace(key_id=row.key_id))
        await TurnStore(pool, Queries.load()).record(record)
        assert "today 1 $0.0000" in plain((await client.get("/ui/keys")).text)


async def test_no_such_key(page: Page) -> None:
    async with page.browser() as client:
        for key in ("x", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "a%2Fb"):
            assert (await client.get(f"/ui/keys/{key}")).status_code == 404


async def test_many_keys_are_paged(page: Page) -> None:
    for n in range(51):
        await page.api.tenancy.create_key("local", f"key-{n}")
    async with page.browser() as client:
        text = (await client.get("/ui/keys")).text
        assert text.count('class="id dim"') == 50
        (following,) = re.findall(r'rel="next" href="([^"]+)"', text)
        assert (await client.get(following.replace("&amp;", "&"))).text.count('class="id dim"') == 1
        assert (await client.get("/ui/keys", params={"cursor": "nonsense"})).status_code == 400


# --- what a key may see ----------------------------------------------------------------------------------------------------


async def test_what_a_key_of_one_user_sees(locked: Page, pool: Pool) -> None:
    tenancy, now = locked.api.tenancy, locked.api.clock.now()
    key, row = await tenancy.create_key("local", "ana", user="ana")
    turns = TurnStore(pool, Queries.load())
    for user in ("ana", "bob", "bob"):
        await capture(turns, CapturedCall(now, user=user, tenant=row.tenant_id))
    async with locked.browser() as client:
        await sign_in(client, key)
        text = (await client.get("/ui")).text
        assert 'aria-label="Calls: 1 calls' in text
        assert "Storage</h2>" not in text
        assert "bob" not in text
        assert (await client.get("/ui", params={"user": "bob"})).status_code == 403
        jobs = await client.get("/ui/jobs")
        assert jobs.status_code == 200
        assert "jobs belong to the whole tenant" in jobs.text
        assert (await post(client, "/ui/jobs/1/retry")).status_code == 403
        for path in ("/ui/keys", "/ui/settings", f"/ui/keys/{row.key_id}"):
            assert (await client.get(path)).status_code == 403
        assert (await post(client, "/ui/keys", name="mine")).status_code == 403


async def test_what_other_keys_see(locked: Page) -> None:
    tenancy = locked.api.tenancy
    may = {
        "operator": (await tenancy.create_key("local", "a"))[0],
        "other tenant": (await tenancy.create_key("two", "b"))[0],
        "reader": (await tenancy.create_key("local", "c", scopes=["read"]))[0],
        "proxy": (await tenancy.create_key("local", "d", scopes=["proxy"]))[0],
    }
    found = {}
    for name, key in may.items():
        async with locked.browser() as client:
            await sign_in(client, key)
            found[name] = [
                (await client.get(path)).status_code
                for path in ("/ui", "/ui/jobs", "/ui/keys", "/ui/keys/new", "/ui/settings")
            ]
    assert found == {
        "operator": [200, 200, 200, 200, 200],
        "other tenant": [200, 200, 200, 200, 403],
        "reader": [200, 200, 403, 403, 403],
        "proxy": [403, 403, 403, 403, 403],
    }


# --- settings --------------------------------------------------------------------------------------------------------------


async def test_settings_show_no_secret(page: Page) -> None:
    canary = "c4n4ry-9f8e7d6c5b4a"
    site = Page(
        page.api, auth="open", database_url=f"postgresql://u:{canary}@h/db", helper_api_key=canary,
        upstreams=[{"name": "a", "base_url": f"http://u:{canary}@h/v1", "api_key": canary}],
        domains={"erp": {"dsn": f"postgresql://r:{canary}@h/erp"}},
    )  # fmt: skip
    async with site.browser() as client:
        text = (await client.get("/ui/settings")).text
        assert canary not in text
        assert "the tests" not in text, "what signs the cookies"
        assert text.count("set, not shown") >= 4
        assert "MNEME_UI_SECRET" in text
