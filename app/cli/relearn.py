"""`mneme relearn`: what today's learning finds in the stored history takes the place of what was learned before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import click
from msgspec import Struct, field
from msgspec.structs import asdict
from rich.console import Console

from app.clock import SystemClock
from app.console import failing_clearly, load_settings, show, with_database
from app.errors import NotFound, NotReady
from app.features import load
from app.jobs.relearn import RelearnChange, Relearner, RelearnReport
from app.memory.extract import read_rules
from app.server.core import lacking, learner, open_core, process_of
from app.server.worker import eraser_of
from app.settings import Settings
from app.store import ids
from app.store.erasure import connected, own_connection
from app.store.pools import OWNER_ROLE
from app.store.queries import Queries

USERS_AT_ONCE = 200
"""Users that one statement lists."""
RESUMED_WITHIN = timedelta(days=1)
"""Time within which a stopped run goes on. Later, Mneme may be another version, and the run begins anew."""

SIGNS: dict[RelearnChange, str] = {"added": "+", "changed": "~", "retired": "-"}
"""The sign before a line of each kind."""

ReportStart = Callable[[RelearnReport], None]
"""Called with the report of each user before it is completed."""


class RelearnTarget(Struct, frozen=True):
    """The users to learn about again. `user`: None for all users of the tenant. `tenant`: None for all tenants."""

    user: str | None
    tenant: str | None
    dry: bool = False


class RelearnTotals(Struct):
    """The outcome of a run. `users`: how many users it was done with; `done_before`: how many the stopped run had done."""

    users: int = 0
    done_before: int = 0
    reports: list[RelearnReport] = field(default_factory=list)

    def note(self, report: RelearnReport | None) -> None:
        """Count a user, and keep the report of one with changes."""
        self.users += report is not None
        self.done_before += report is None
        if report is not None and (report.lines or report.unread):
            self.reports.append(report)

    def count_changes(self) -> dict[RelearnChange, int]:
        """Return how many memories were added, changed and retired."""
        lines = [line.change for report in self.reports for line in report.lines]
        return {change: lines.count(change) for change in SIGNS}


async def relearn_users(settings: Settings, dsn: str, target: RelearnTarget, begin: ReportStart) -> RelearnTotals:
    """Learn again about users. Raises NotFound, NotReady, StoreUnavailable."""
    if missing := await lacking(settings, settings.direct(dsn)):
        raise NotReady(f"This database cannot be used: {missing} Run `mneme migrate` first.")
    clock, sql, totals = SystemClock(), Queries.load(), RelearnTotals()
    eraser = eraser_of(settings, load(settings), settings.direct(dsn), sql, clock)
    tenant = None if target.tenant is None else await eraser.tenant(target.tenant)
    async with (
        _open_relearner(settings, dsn) as relearner,
        connected(own_connection(settings.direct(dsn), OWNER_ROLE)) as owner,
    ):
        if target.user is not None:
            assert tenant is not None, "a user is one of a tenant"
            report = RelearnReport(target.user, str(target.tenant))
            begin(report)
            outcome = await relearner.relearn(
                tenant, ids.user_id(tenant, target.user), report, run=None, dry=target.dry
            )
            if outcome is None:
                raise NotFound(f"There is no user {target.user!r} in the tenant {target.tenant!r}.")
            totals.note(outcome)
            return totals
        now, run = clock.now(), None
        if not target.dry:
            began_at = await owner.fetchval(sql["relearning.begin"], now, now - RESUMED_WITHIN)
            run = began_at.isoformat()
        after: UUID | None = None
        while rows := await owner.fetch(sql["relearning.users"], after, tenant, USERS_AT_ONCE):
            for row in rows:
                if row["user_id"] != ids.nobody(row["tenant_id"]):
                    report = RelearnReport(row["external_id"], row["tenant"])
                    begin(report)
                    totals.note(
                        await relearner.relearn(row["tenant_id"], row["user_id"], report, run=run, dry=target.dry)
                    )
            after = rows[-1]["user_id"]
        if not target.dry:
            await owner.execute(sql["relearning.finish"])
    return totals


@asynccontextmanager
async def _open_relearner(settings: Settings, dsn: str) -> AsyncIterator[Relearner]:
    """Open a relearner that learns as the worker does."""
    features, clock = load(settings), SystemClock()
    read_rules()
    async with (
        features.within(lambda feature: feature.running()),
        open_core(settings, dsn, clock, serving=False) as core,
    ):
        process = process_of(core, space=await core.turns.space_of(core.embedder.space))
        async with features.within(lambda feature: feature.opened(process)):
            learning = await learner(core, features.only(lambda feature: feature.hearing(process)))
            yield Relearner(learning, core.pools.background, core.queries, clock, has_helper=core.helper is not None)


@click.command("relearn")
@click.option("--user", help="A user, as the application calls them.")
@click.option("--all", "all_users", is_flag=True, help="All users.")
@click.option("--tenant", help="Name of the tenant. [default: local, of all with --all]")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def relearn_history(user: str | None, all_users: bool, tenant: str | None, dry_run: bool, as_json: bool) -> None:
    """Learn again from the stored history with today's rules, while the server runs.

    Says what is added, changed and retired. What somebody wrote, confirmed, denied or had forgotten stays as it is. Stopped, it
    goes on with the next user when it is run again.
    """
    if (user is None) == (not all_users):
        raise click.UsageError("Name one user with --user, or all with --all; not both.")
    settings = load_settings()
    target = RelearnTarget(user, tenant or ("local" if user is not None else None), dry_run)
    with Console(stderr=True).status("learning again …") as status:

        def begin(report: RelearnReport) -> None:
            status.update(f"learning again about {report.user} …")

        totals = with_database(settings, lambda dsn: relearn_users(settings, dsn, target, begin))
    show(_build_summary(totals, dry_run), as_json, lambda: _print_totals(totals, dry_run))


def _build_summary(totals: RelearnTotals, dry: bool) -> dict[str, Any]:
    reports = [asdict(report) | {"lines": [asdict(line) for line in report.lines]} for report in totals.reports]
    summary = {"dry_run": dry, "users": totals.users, "done_before": totals.done_before}
    return summary | totals.count_changes() | {"reports": reports}


def _print_totals(totals: RelearnTotals, dry: bool) -> None:
    for report in totals.reports:
        click.echo(f"{report.user} ({report.tenant}): {report.messages} messages, {report.unchanged} memories stay")
        for line in report.lines:
            before = f"   (before: {line.before})" if line.before is not None else ""
            click.echo(
                f"  {SIGNS[line.change]} {line.text} [{line.kind}, {line.status}, {line.said_at:%Y-%m-%d}]{before}"
            )
        if report.unread:
            click.echo(f"  {report.unread} messages {'would be' if dry else 'are'} left to the helper LLM")
    counts = ", ".join(f"{number} {change}" for change, number in totals.count_changes().items())
    click.echo(f"{counts}, for {totals.users} users{'; nothing was written (--dry-run)' if dry else ''}.")
    if totals.done_before:
        click.echo(f"{totals.done_before} users were done before the run was stopped.")
