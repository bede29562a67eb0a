"""What `mneme doctor` says of the business's own databases, and of their ontologies."""

from __future__ import annotations

from app.clock import SystemClock
from app.errors import DomainAway, MnemeError
from app.features import Finding
from app.features.knowledge.domain import DomainPool
from app.features.knowledge.ontologies import OntologyStore
from app.features.knowledge.ontology_yaml import read
from app.features.knowledge.schema import check
from app.settings import Settings
from app.store.pools import command_pool
from app.store.queries import Queries
from app.store.tenancy import Tenancy

ASK_S = 5.0
"""Seconds that a domain has to answer."""


async def findings(settings: Settings, dsn: str | None) -> list[Finding]:
    """Each domain: whether it answers, whether its role could write, and whether its tenants' ontologies fit its tables."""
    found = []
    for name, source in settings.domains.items():
        pool = DomainPool(name, source, Queries.load())
        try:
            role = (await pool.query("writer", timeout_s=ASK_S))[0]
            found.append(Finding("ok", f"The domain {name} answers, as {role['role']}."))
            if role["is_superuser"] and not source.allow_writer:
                mend = "Make a role that can only read: docs/how-to/domain-database.md has the commands."
                found.append(
                    Finding("error", f"{role['role']} is a superuser in {name}: nothing is asked there.", mend)
                )
            if dsn is not None:
                found += [await _ontology(settings, dsn, pool, tenant) for tenant in source.tenants]
        except DomainAway as away:
            found.append(Finding("error", away.message, f"Check the dsn of {name} in MNEME_DOMAINS, and that it runs."))
        except MnemeError as error:
            found.append(Finding("warning", f"The ontology of {name} cannot be read: {error.message}", "See above."))
        finally:
            await pool.close()
    return found


async def _ontology(settings: Settings, dsn: str, domain: DomainPool, tenant: str) -> Finding:
    """A tenant's ontology, against the tables of its domain."""
    async with command_pool(settings, dsn) as pool:
        sql, clock = Queries.load(), SystemClock()
        owner = await Tenancy(pool, sql, clock).tenant(tenant)
        rows = await OntologyStore(pool, sql, clock).sources(owner) if owner is not None else []
    whose = f"The ontology of {domain.name} (tenant {tenant})"
    draft = next((read(each.source).draft for each in rows if each.domain == domain.name), None)
    if draft is None:
        mend = (
            f"Run `mneme ontology draft --domain {domain.name}`, look at it, and load it: nothing is asked there else."
        )
        return Finding("warning", f"{whose} is not loaded.", mend)
    tables = await domain.catalog([each.table for each in draft.types.values()], ASK_S)
    findings = check(draft, tables, allow_writer=domain.source.allow_writer)
    errors = [each for each in findings if each.level == "error"]
    if errors:
        told = f"{whose}, line {errors[0].line}: {errors[0].message}"
        return Finding("error", told, f"{len(errors)} errors in all: `mneme ontology check` tells each.")
    return Finding("ok", f"{whose} fits its {len(tables)} tables; {len(findings)} warnings.")
