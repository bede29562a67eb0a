"""Ontologies and domains as a process opens them: from the settings, with the tenants of its own database."""

from __future__ import annotations

from app.clock import SystemClock
from app.features.knowledge import Knowledge
from app.features.knowledge.ontologies import OntologyStore, rows_of
from app.features.knowledge.ontology_yaml import read
from app.features.knowledge.resolution import RowQuery
from app.server.core import open_core, process_of
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from tests.integration.knowledge.conftest import source
from tests.support.sample_domain import ONTOLOGY_YAML, SampleDomain


async def test_what_is_loaded_is_asked_where_the_settings_say(database: str, sample: SampleDomain) -> None:
    settings = Settings(
        _env_file=None, embedder="none", domains={"erp": source(sample.dsn), "off": source(sample.dsn, tenants=["x"])}
    )
    async with open_core(settings, database, SystemClock(), serving=False) as core:
        draft = read(ONTOLOGY_YAML).draft
        assert draft is not None
        store = OntologyStore(core.pools.background, core.queries, core.clock)
        await store.load(LOCAL_TENANT, "erp", ONTOLOGY_YAML, *rows_of(draft))
        knowledge, process = Knowledge(settings), process_of(core, space=None)
        async with knowledge.opened(process):
            ontologies, domains = knowledge.things(process).ontologies, knowledge.things(process).domains
            assert set((await ontologies.of(LOCAL_TENANT)).types) == set(draft.types)
            ((found,), _) = await domains.find(LOCAL_TENANT, [RowQuery("Delta Logistics", ())])
            assert found.entity == ("customer:del_789", "customer", "Delta Logistics")
