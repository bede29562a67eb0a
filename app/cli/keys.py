"""`mneme keys`: make, list, limit and revoke keys, and see what they spent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import click

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import BadRequest, NotFound
from app.gateway.naming import InvalidName, parse_name
from app.settings import Settings
from app.sources import PRICE_NAMES
from app.store.pools import Pool, command_pool
from app.store.queries import Queries
from app.store.tenancy import (
    GROUPS,
    MAX_COUNT,
    MICROCENTS_PER_DOLLAR,
    NO_LIMITS,
    PERIODS,
    By,
    KeyInfo,
    KeyLimits,
    Tenancy,
    microcents,
)

T = TypeVar("T")

NONE = "none"
"""Takes a limit away."""
_MAX_DAYS = 36_500
"""A hundred years."""
PAGE = 1000
"""Groups of spend read at once."""


class _Amount(click.ParamType[int | str]):
    """A number that `read` takes, or `none`."""

    def __init__(self, name: str, read: Callable[[str], int]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == NONE:
            return value
        try:
            return self._read(str(value))
        except (ValueError, BadRequest) as error:
            self.fail(getattr(error, "message", f"{value!r} is no whole number from 0 to {MAX_COUNT}."), param, ctx)


def _whole(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_COUNT)) else -1
    if not 0 <= number <= MAX_COUNT:
        raise ValueError
    return number


_COUNT = _Amount("number", _whole)
_DOLLARS = _Amount("dollars", microcents)

_LIMITS = (
    click.option("--rpm", "requests_per_minute", type=_COUNT, help="Requests per minute."),
    click.option("--tpm", "tokens_per_minute", type=_COUNT, help="Tokens per minute."),
    click.option("--token-budget", type=_COUNT, help="Tokens in one period."),
    click.option("--token-period", type=click.Choice(PERIODS), help="Of the token budget (month)."),
    click.option("--money-budget", type=_DOLLARS, help="US dollars in one period."),
    click.option("--money-period", type=click.Choice(PERIODS), help="Of the money budget (month)."),
    click.option(
        "--model", "models", multiple=True, help="A model that it may call, or a pattern with * (default: any)."
    ),
    click.option("--capture/--no-capture", default=None, help="Whether its calls may be captured (they may)."),
    click.option(
        "--paging",
        type=click.Choice(("on", "off", NONE)),
        callback=lambda _, __, value: value if value in (None, NONE) else value == "on",
        help="Whether its calls are paged (as the server's setting).",
    ),
    click.option(
        "--price", type=click.Choice((*PRICE_NAMES, NONE)), help="Of a token of memory (as the server's setting)."
    ),
)


def _limit_options(command: Callable[..., T]) -> Callable[..., T]:
    for option in reversed(_LIMITS):
        command = option(command)
    return command


def _change(given: dict[str, Any]) -> dict[str, Any]:
    """What the options say, by the fields of `KeyLimits`."""
    change = {name: None if value == NONE else value for name, value in given.items() if value not in (None, ())}
    if models := given.get("models"):
        change["models"] = () if models == (NONE,) else tuple(models)
    return change


def _with_tenancy(work: Callable[[Tenancy], Coroutine[Any, Any, T]]) -> T:
    return _with_pool(lambda pool: work(Tenancy(pool, Queries.load(), SystemClock())))


def _with_pool(work: Callable[[Pool], Coroutine[Any, Any, T]]) -> T:
    settings: Settings = load_settings()

    async def run(dsn: str) -> T:
        async with command_pool(settings, dsn) as pool:
            return await work(pool)

    return with_database(settings, run)


@click.group()
def keys() -> None:
    """API keys."""


def _check_user_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    try:
        return parse_name(name) if name is not None else None
    except InvalidName as error:
        raise click.BadParameter(f"the user {error}", context, parameter) from error


@keys.command("create")
@click.argument("name")
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant; made if it is new.")
@click.option("--user", callback=_check_user_name, help="Make it a key for this one user.")
@click.option("--scope", "scopes", multiple=True, help="What it may do: read, write, proxy, admin (default: all).")
@click.option("--days", type=click.IntRange(1, _MAX_DAYS), help="Days until it expires (default: never).")
@_limit_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_create(
    name: str, tenant: str, user: str | None, scopes: tuple[str, ...], days: int | None, as_json: bool, **given: Any
) -> None:
    """Make a key called NAME. It is shown once; only its hash is kept."""
    limits = NO_LIMITS.changed(_change(given))
    expires = _after(days)
    key, row = _with_tenancy(
        lambda tenancy: tenancy.create_key(tenant, name, user=user, expires_at=expires, scopes=scopes, limits=limits)
    )
    data = {
        "key": key,
        "id": str(row.key_id),
        "tenant": tenant,
        "name": name,
        "user": user,
        "expires_at": expires,
        "limits": _shown(limits),
    }
    show(data, as_json, lambda: click.echo(key))


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_list(as_json: bool) -> None:
    """List all keys: never the keys themselves."""
    rows = _with_tenancy(lambda tenancy: tenancy.list_keys())
    data = [_listed(row) for row in rows]

    def text() -> None:
        for each in data:
            state = "revoked" if each["revoked_at"] else f"until {each['expires_at']}" if each["expires_at"] else ""
            limits = " ".join(f"{name}={value}" for name, value in each["limits"].items())
            click.echo(
                f"{each['id']}  {each['hint']}…  {each['name']}  {each['user'] or ''}  {state}  {limits}".rstrip()
            )

    show(data, as_json, text)


@keys.command("limit")
@click.argument("key_id", type=click.UUID)
@click.option("--days", type=click.IntRange(1, _MAX_DAYS), help="Days from now until it expires.")
@_limit_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_limit(key_id: UUID, days: int | None, as_json: bool, **given: Any) -> None:
    """Set what the key with this id may use: what is named changes, `none` takes a limit away. Without options: show it."""
    row = _with_tenancy(lambda tenancy: tenancy.change_key(key_id, _change(given), expires_at=_after(days)))
    if row is None:
        raise click.ClickException(f"There is no key {key_id}; `mneme keys list` shows all.")
    data = _listed(row)
    shown = " ".join(f"{name}={value}" for name, value in data["limits"].items()) or "no limits"
    show(data, as_json, lambda: click.echo(shown))


@keys.command("revoke")
@click.argument("key_id", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_revoke(key_id: UUID, as_json: bool) -> None:
    """Revoke the key with this id (see `mneme keys list`)."""
    found = _with_tenancy(lambda tenancy: tenancy.revoke_key(key_id))
    if not found:
        raise click.ClickException(f"There is no key {key_id}; `mneme keys list` shows all.")
    show({"revoked": str(key_id)}, as_json, lambda: click.echo("Revoked."))


@keys.command("spend")
@click.option("--tenant", default="local", show_default=True, help="Name of the tenant.")
@click.option("--by", type=click.Choice(GROUPS), default="key", show_default=True, help="What is added up.")
@click.option("--from", "since", type=click.DateTime(["%Y-%m-%d"]), help="First day, UTC (30 days ago).")
@click.option("--to", "until", type=click.DateTime(["%Y-%m-%d"]), help="Last day, UTC (today).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def keys_spend(tenant: str, by: By, since: datetime | None, until: datetime | None, as_json: bool) -> None:
    """Show what was spent, by key, user, session, model or day."""
    from app.features.limits.limiter import USUAL_DAYS, SpendStore, spent_out

    sql = Queries.load()
    last = (until or datetime.now(UTC)).date()
    first = since.date() if since is not None else last - timedelta(days=USUAL_DAYS)

    async def read(pool: Pool) -> list[Any]:
        spend, tenant_id = SpendStore(pool, sql), await Tenancy(pool, sql, SystemClock()).tenant(tenant)
        if tenant_id is None:
            raise NotFound(f"There is no tenant {tenant!r}.")
        found: list[Any] = []
        while page := await spend.spent(
            tenant_id, None, by, first, last, after=found[-1].value if found else "", limit=PAGE
        ):
            found += page
        return [(spent_out(tenant_id, by, each)).model_dump() for each in found]

    rows = _with_pool(read)

    def text() -> None:
        for each in rows:
            unpriced = f"  ({each['unpriced_tokens']} tokens without a price)" if each["unpriced_tokens"] else ""
            tokens = each["prompt_tokens"] + each["completion_tokens"]
            what = each["name"] or each["id"] or "-"
            click.echo(f"{what}  {each['calls']} calls  {tokens} tokens  ${each['cost_usd']:.4f}{unpriced}")

    show(rows, as_json, text)


def _after(days: int | None) -> datetime | None:
    return datetime.now(UTC) + timedelta(days=days) if days is not None else None


def _shown(limits: KeyLimits) -> dict[str, Any]:
    """Only what was set; money in US dollars."""
    shown = limits.as_json()
    if "money_budget" in shown:
        shown["money_budget_usd"] = shown.pop("money_budget") / MICROCENTS_PER_DOLLAR
    return shown


def _listed(row: KeyInfo) -> dict[str, Any]:
    return {
        "id": str(row.key_id),
        "tenant": str(row.tenant_id),
        "name": row.name,
        "hint": row.hint,
        "user": row.user_external_id,
        "scopes": list(row.scopes),
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
        "limits": _shown(row.limits),
    }
