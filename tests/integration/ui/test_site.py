"""Who is let in, what every answer carries, and what is no page."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import StoreUnavailable
from app.features.ui.site import SECURITY_HEADERS, Site
from app.features.ui.visit import COOKIE, Entry, Visit
from tests.support.cases import cases
from tests.support.ui_forms import post, sign_in, token
from tests.support.ui_page import Page

UNKNOWN = "mneme_" + "x" * 43


def told(answer: httpx.Response) -> str:
    """What the page says, where it cannot."""
    found = re.search(r'role="alert">(.*?)</p>', answer.text, re.DOTALL)
    assert found, answer.text[-600:]
    return found[1]


def in_words(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert told(answer)
    assert "Traceback" not in answer.text
    for name, value in SECURITY_HEADERS.items():
        assert answer.headers.get_list(name) == [value]
    assert answer.headers["cache-control"] == "no-store"


# --- signing in ------------------------------------------------------------------------------------------------------------


async def test_signing_in_and_out(locked: Page) -> None:
    key, _ = await locked.api.tenancy.create_key("one", "app")
    async with locked.browser() as client:
        answer = await client.get("/ui/jobs", params={"cursor": "a b"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login?next=%2Fui%2Fjobs%3Fcursor%3Da%2Bb")
        before = await token(client)
        cookie = client.cookies[COOKIE]
        answer = await sign_in(client, f" {key} ", next="/ui/jobs?x=1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs?x=1")
        assert client.cookies[COOKIE] != cookie, "a cookie from before signing in is of no use"
        assert await token(client, "/ui/jobs") != before
        assert (await client.get("/ui/jobs")).status_code == 200
        assert (await client.get("/ui/login", params={"next": "/ui/keys"})).headers["location"] == "/ui/keys"
        answer = await post(client, "/ui/logout")
        assert answer.headers["location"] == "/ui/login"
        assert COOKIE not in client.cookies
        assert (await client.get("/ui/jobs")).status_code == 303


@cases("key", [UNKNOWN, "", "sk-123", "mneme_é🔑", "mneme_" + "y" * 100_000])
async def test_a_wrong_key_is_said(locked: Page, key: str) -> None:
    async with locked.browser() as client:
        answer = await sign_in(client, key)
        in_words(answer, 401)
        assert (await client.get("/ui")).status_code == 303


async def test_a_copied_cookie_ends_with_signing_out(locked: Page) -> None:
    key, _ = await locked.api.tenancy.create_key("one", "app")
    async with locked.browser() as client, locked.browser() as thief, locked.browser() as other:
        await sign_in(client, key)
        await sign_in(other, key)
        copied = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
        assert (await thief.get("/ui/jobs", headers=copied)).status_code == 200
        await post(client, "/ui/logout")
        assert (await thief.get("/ui/jobs", headers=copied)).headers["location"].startswith("/ui/login")
        assert (await other.get("/ui/jobs")).status_code == 200, "another browser's session is its own"


async def test_a_revoked_or_expired_key_signs_out(locked: Page) -> None:
    wired = locked.api
    key, row = await wired.tenancy.create_key("one", "app")
    ending, _ = await wired.tenancy.create_key("one", "b", expires_at=wired.clock.now() + timedelta(minutes=5))
    async with locked.browser() as client, locked.browser() as other:
        await sign_in(client, key)
        await sign_in(other, ending)
        assert [(await each.get("/ui/keys")).status_code for each in (client, other)] == [200, 200]
        await wired.tenancy.revoke_key(row.key_id)
        wired.clock.move(timedelta(seconds=11))
        assert (await client.get("/ui/keys")).status_code == 303
        assert (await post(client, "/ui/keys", name="x")).headers["location"] == "/ui/login"
        wired.clock.move(timedelta(minutes=5))
        assert (await other.get("/ui/keys")).status_code == 303
        answer = await other.get("/ui", headers={"hx-request": "true"})
        assert (answer.status_code, answer.headers["hx-redirect"], answer.text) == (200, "/ui/login", "")


@cases(
    "elsewhere",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/ui\\@evil", "javascript:alert(1)", "/uix", "http://[",
     "/api/v1/keys", "\t//evil.example", "/ui/../..//evil", "ui"],
)  # fmt: skip
async def test_nothing_leads_elsewhere(locked: Page, elsewhere: str) -> None:
    key, _ = await locked.api.tenancy.create_key("one", "app")
    async with locked.browser() as client:
        location = (await sign_in(client, key, next=elsewhere)).headers["location"]
        assert re.match(r"/ui(/|$)", location), location
        location = (await post(client, "/ui/theme", theme="dark", next=elsewhere)).headers["location"]
        assert re.match(r"/ui(/|$)", location), location


async def test_cookies_are_for_the_page_alone(locked: Page) -> None:
    for base, secure in (("http://127.0.0.1", False), ("https://mneme.example", True)):
        async with locked.browser(base) as client:
            set_cookie = (await client.get("/ui/login")).headers["set-cookie"].lower()
            assert set_cookie.startswith(COOKIE)
            for attribute in ("httponly", "samesite=lax", "path=/ui", "max-age=43200"):
                assert attribute in set_cookie
            assert ("secure" in set_cookie) is secure
            assert "domain" not in set_cookie


# --- forms -----------------------------------------------------------------------------------------------------------------


def posts(site: Site) -> list[str]:
    """Every path that takes a POST, with something in its places."""
    return sorted({"/ui" + re.sub(r"{[^}]*}", "1", each.path) for each in site.entries if "POST" in each.methods})


async def test_no_post_without_this_sessions_token(page: Page) -> None:
    """Whoever makes them: all of them are known here."""
    paths = posts(page.site)
    assert {"/ui/keys", "/ui/jobs/1/retry", "/ui/theme", "/ui/login", "/ui/logout"} <= set(paths)
    async with page.browser() as client, page.browser() as other:
        await token(client, "/ui/keys")
        foreign = await token(other, "/ui/keys")
        for path in paths:
            for sent in ({}, {"csrf": ""}, {"csrf": foreign}, {"csrf": "é" * 9}):
                answer = await client.post(path, data=sent)
                in_words(answer, 403)
                assert "form" in told(answer)
            in_words(await client.post(path, json={"csrf": foreign}), 403)
            fresh = await client.post(path, headers={"cookie": ""}, data={"csrf": foreign})
            assert fresh.status_code == 403
    assert await page.api.tenancy.list_keys() == []


async def test_forms_that_are_none(page: Page) -> None:
    async with page.browser() as client:
        csrf = await token(client, "/ui/keys")
        in_words(await client.post("/ui/theme", files={"f": ("a", b"b")}, data={"csrf": csrf}), 403)
        in_words(await client.post("/ui/theme", data={"csrf": csrf, **{f"f{n}": "" for n in range(100)}}), 400)
        huge = "x" * (1024 * 1024)
        in_words(await client.post("/ui/keys", data={"csrf": csrf, "name": huge}), 413)

        async def chunks() -> Any:
            for _ in range(20):
                yield huge.encode()

        answer = await client.post(
            "/ui/keys", content=chunks(), headers={"content-type": "application/x-www-form-urlencoded"}
        )
        in_words(answer, 413)


@cases("charset", ["utf-7", "unicode_escape", "idna", "punycode"])
async def test_the_sender_of_a_form_chooses_no_charset(locked: Page, charset: str) -> None:
    """Of a multipart form one could: half characters that no text may hold, and `punycode`, whose reading takes seconds."""
    for kind in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        async with locked.browser() as client:
            csrf = await token(client)
            part = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
            content = part % (b"csrf", csrf.encode()) + part % (b"key", b"+2AA-\\ud800xn--a") + b"--x--\r\n"
            if "multipart" not in kind:
                content = b"csrf=%s&key=%%2B2AA-%%5Cud800xn--a" % csrf.encode()
            answer = await client.post(
                "/ui/login", content=content, headers={"content-type": f"{kind}; charset={charset}"}
            )
            in_words(answer, 403 if "multipart" in kind else 401)


async def test_numbers_of_thousands_of_digits(page: Page) -> None:
    """Python does not read them."""
    digits = "9" * 5000
    async with page.api.client() as api:
        memory = (await api.post("/api/v1/memories", json={"user": "ana", "text": "Likes tea"})).json()["id"]
        said = {"messages": [{"role": "user", "content": "Hello"}]}
        assert (await api.post("/api/v1/sessions/s/messages", json=said, params={"user": "ana"})).is_success
    async with page.browser() as client:
        for path in ("/ui/sessions/s?user=ana&before=", "/ui/sessions/s?user=ana&turn="):
            assert (await client.get(path + digits)).status_code == 200
        for path in ("/ui/memories?user=ana&q=tea&tier=", "/ui/users/ana?tab=memories&q=tea&tier="):
            assert "tier" in (await client.get(path + digits)).text
        in_words(await post(client, "/ui/memories/new", user="ana", text="Likes tea", tier=digits), 400)
        in_words(await post(client, f"/ui/memories/{memory}", tier=digits), 400)
        in_words(await post(client, "/ui/sessions/s/do?user=ana", do="compact", target_tokens=digits), 400)


# --- names -----------------------------------------------------------------------------------------------------------------


async def test_names_that_browsers_would_walk(page: Page) -> None:
    """Names with path segments of dots, which browsers and httpx take out of a path, have working links."""
    for name in ("./a", "../a"):
        async with page.api.client() as api:
            fact = {"value": "Ghent", "category": "personal"}
            assert (await api.post("/api/v1/memories", json={"user": name, "text": f"Lives in Ghent{name}"})).is_success
        async with page.browser() as client:
            links = re.findall(r'href="(/ui/users/[^"?]+)"', (await client.get("/ui/users")).text)
            found = [each for each in links if f">{name}</" in (await client.get(each)).text]
            assert found, links
            answer = await post(client, f"{found[0]}/facts", key=name, **fact)
            assert answer.status_code == 303, told(answer)
            text = (await client.get(answer.headers["location"])).text
            assert "Ghent" in text
            assert (await post(client, f"{found[0]}/erase", id=name)).status_code == 200
            assert (await client.get(found[0])).status_code == 404


# --- what is no page -------------------------------------------------------------------------------------------------------


async def test_errors_are_pages(page: Page) -> None:
    async def broken(_: Visit) -> Response:
        raise ValueError("c4n4ry")

    async def away(_: Visit) -> Response:
        raise StoreUnavailable

    site = Page(page.api, auth="open")
    site.site = Site(
        page.api.authenticator, page.api.app, page.site._cookies, [Entry("/broken", broken), Entry("/away", away)],
        open_mode=True,
    )  # fmt: skip
    async with site.browser() as client:
        in_words(await client.get("/ui/nothing"), 404)
        in_words(await client.post("/ui/nothing/at/all"), 404)
        in_words(await client.get("/ui/static/../cookie.py"), 404)
        in_words(await client.get("/ui/static/none.js"), 404)
        in_words(await client.get("/ui/theme"), 405)
        in_words(await client.delete("/ui/login"), 405)
        in_words(await client.get("/ui/away"), 503)
        answer = await client.get("/ui/broken")
        in_words(answer, 500)
        assert "c4n4ry" not in answer.text


async def test_the_database_is_away(locked: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = await locked.api.tenancy.create_key("one", "app")
    async with locked.browser() as client:
        await sign_in(client, key)

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable

        locked.api.authenticator.forget()
        monkeypatch.setattr(locked.api.tenancy.__class__, "key", away)
        in_words(await client.get("/ui"), 503)
        assert COOKIE in client.cookies, "it is no reason to sign out"


async def test_one_signs_out_though_the_database_is_away(locked: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = await locked.api.tenancy.create_key("one", "app")
    async with locked.browser() as client:
        await sign_in(client, key)
        csrf = await token(client, "/ui/jobs")

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable

        locked.api.authenticator.forget()
        monkeypatch.setattr(locked.api.tenancy.__class__, "key", away)
        refused = await client.get("/ui/jobs?cursor=x")
        in_words(refused, 503)
        assert '<a href="/ui/jobs?cursor=x">Try again</a>' in refused.text
        answer = await client.post("/ui/logout", data={"csrf": csrf})
        assert (answer.status_code, COOKIE in client.cookies) == (303, False)
        assert (await client.get("/ui/login")).status_code == 200
        in_words(await sign_in(client, key), 503)


async def test_heads_and_slashes(page: Page) -> None:
    async with page.browser() as client:
        for path in ("/ui", "/ui/login", "/ui/jobs"):
            assert (await client.head(path)).status_code in (200, 303)
        answer = await client.get("/ui/")
        assert (answer.status_code, answer.headers["location"]) == (308, "/ui")
        answer = await client.get("/ui/users/a%2Fb/")
        assert (answer.status_code, answer.headers["location"]) in ((308, "/ui/users/a%2Fb"), (200, None), (404, None))
        assert (await client.get("/ui//evil.example/")).headers["location"].startswith("/ui/")


async def test_this_very_page_survives_a_change_of_colours(page: Page) -> None:
    async with page.browser() as client:
        text = (await client.get("/ui/keys/a%2Fb?q=%22%3E<script>")).text
        assert 'name="next" value="/ui/keys/a%2Fb?q=%22%3E%3Cscript%3E"' in text
        answer = await post(client, "/ui/theme", theme="dark", next="/ui/keys/a%2Fb")
        assert answer.headers["location"] == "/ui/keys/a%2Fb"
        assert 'data-theme="dark"' in (await client.get("/ui/login?x", follow_redirects=True)).text
        await post(client, "/ui/theme", theme="'><script>")
        assert "data-theme" not in (await client.get("/ui")).text


async def test_assets_are_kept_and_named(page: Page) -> None:
    async with page.browser() as client:
        text = (await client.get("/ui")).text
        found = re.findall(r'(?:src|href)="(/ui/static/[^"]+)"', text)
        assert len(found) >= 5
        for path in found:
            answer = await client.get(path)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "set-cookie" not in answer.headers
        assert (await client.get(found[0].partition("?")[0])).headers["cache-control"] == "no-cache"


@cases("absent", ["overview", "calls", "facts"])
async def test_the_page_goes_without_other_features(page: Page, absent: str) -> None:
    """It begins with the first page that has all it shows, and what there is of a user is erased."""
    whole = page.api.app

    async def rest(scope: Scope, receive: Receive, send: Send) -> None:
        if absent in scope["path"].split("/"):
            scope = {**scope, "path": "/api/v1/nowhere", "raw_path": b"/api/v1/nowhere"}
        await whole(scope, receive, send)

    page = Page(replace(page.api, app=cast(Any, rest)), auth="open")
    async with page.browser() as client:
        first = await client.get("/ui")
        if absent == "facts":
            assert first.status_code == 200
        else:
            assert (first.status_code, first.headers["location"]) == (303, "/ui/sessions")
            in_words(await client.get("/ui", params={"user": "eva"}), 404)
        added = await post(client, "/ui/memories/new", user="eva", text="Likes tea", kind="preference")
        assert added.status_code == 303, added.text[-600:]
        asked = await client.get("/ui/users/eva/erase")
        assert asked.status_code == 200
        counted = {"Memories", "Facts", "Sessions", "Calls"}
        assert {each for each in counted if f">{each}<" in asked.text.partition("figures")[2]} == counted - {
            absent.capitalize()
        }
        assert (await post(client, "/ui/users/eva/erase", id="eva")).status_code == 200
