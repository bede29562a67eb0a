"""Files of the schema that databases have: an edited one would keep Mneme from starting on them."""

from __future__ import annotations

from app.store.migrate import load_migrations

FROZEN = {
    "001_foundation.sql": "ae1bf03e788d60824a8918192edd6223d4415ff1933fdcc0330a488a56736fa3",
    "002_history.sql": "6eafe3758bd242bdff01d938277e9f26d8e2ee3310154462d9e967c6441e7229",
    "003_memory.sql": "8c8f47d284b58879e9ba97d5278472f989cd1ed4e8c09a737cc83bb5cac5ac99",
    "004_capture.sql": "c0e1b037c00a78c45b78b88b90070374d937dfb77a5a9e03a235cfe6920d6968",
    "005_access.sql": "f4e2d85364c076b719f03173d6f01670e2da594199010072f929eb0c5f7f300a",
    "006_reads.sql": "c8f1be6afd8cbcf2517b6eb4bf800bfb50b4926329f5818c7864f94c99933f84",
    "007_record.sql": "160894a50aef663cac1fc264485a690f7d21e7089a3e40bdb2b5d97b088ff710",
    "008_limits.sql": "b54b453f4694ee09b4537a90f4628aa00b1a9dbb3c7d18f06fc03ad31919dfc2",
    "009_privacy.sql": "3f3accdabab9f047459d3ad3809b7fae33418c84a2a2b367b64a73cc8831d120",
    "010_lifecycle.sql": "d7b3afb75d2d49fa2e8f2d5edbf8acbd74eb415ca213c64fbc7e097bf6c38212",
    "011_consolidation.sql": "7fbc9ddeeab3ed7f69af3a44937ced00426ad26cc26a140a147da108132d8f1c",
    "012_facts.sql": "8f7028e33e15724243329fd12aa916acace670f99e4bef18e047de51385d94cc",
    "013_triples.sql": "e1dffdea3d9adaf22a48b3de3e1bd0769149146e64351d85f7dc0bc52286af48",
    "014_standing.sql": "17aa08c0810e8b9f64713664b8385005ab47365d52781121192208650eb593b6",
    "015_finding.sql": "7b9613fa091d6c53cbde25959c5b9c542970949fea1e9a05feacf1b4fe6389cf",
    "016_retrieving.sql": "dba84afe7d3c650455830eb03b647598aadc229f9c7effae099ab2fa8bdccf9a",
    "017_forgetting.sql": "04571ad47bad5967123b714533e3041c0829310c9394ef8ceb3e5290599c02b5",
    "018_cassettes.sql": "0b8af99e35bda4f57fd88a7ec30258f7a6a7051eac0e9b2b10710b268cc01b5b",
    "019_replay.sql": "94272a96bf3929cdc28d5a63488fab77a5b6456385c834e90f0490bcba0258f8",
    "021_notes.sql": "af3c9b6abd6c820ee99202289db5a48401f3eb8be9a881c6357291a6a41d5491",
    "022_scanning.sql": "65934800afa1d8bcf69b29d0161cee83b84359e3d368d64779ba98aeeef343f5",
    "023_labels.sql": "44588e850ad5d48f9920e9005720dbc3a288108c460218118c79124bc20984b1",
    "024_summaries.sql": "e75272e237568eae3d8f9274e18efe4b052a51be916b52a229a665cf984172f3",
    "025_learned.sql": "b851ab36bd53b9e98e280c5d4d90638e0369bcd4480672eb9050952662ac13d6",
    "026_knowledge.sql": "ccbbd57b671c71828cc00b263f5c3e8c664d1efe479a59d74f5a99414187b871",
    "027_entities.sql": "c704815d6d2a13936d68168929a5c5a93bc55a73464b5a6457177c2b31ac1e04",
    "029_knowing.sql": "e25265b81f51b454d59b6adfe192bb88ced0a91380e54a9d9075edf28b34696b",
    "030_conflicts.sql": "436a27d33c0f9235929cb471e5758703bd4b30813fcbb0691eb0bf2a6a4c2fce",
    "031_cards.sql": "2d1bcff8dd38e631969656d44264b6da3307cb5f7f361535d925b14d44f39b58",
    "032_views.sql": "0789a9fb9697dcbf6cba558f16fd898488f414199197367a3db7017b99241a17",
    "033_graph.sql": "97a15b4f2ed7596fe817b7c86b202fe5b666eadca7aabdeb5475ea0af3ff802c",
    "034_paging.sql": "d33ec02bd9ea2bef7651d360d7adc7ef137a27b6bc66fea261d7c82dad25a590",
    "035_paging_views.sql": "05223c38b1948741f45f973f8e2d2f52779c00bed1f499afef0e433392a8b029",
    "036_persistent.sql": "2b0c8962a9b21bc091930e466d667a075dc9eaa31e3a62a05963175c828c248e",
    "037_legs.sql": "f808eb773fc87416f7c4329401bfb322289baa94a816a88da90df28cf98d2e15",
    "038_cheaper.sql": "41f0c007cf49df3daade073140b80edbae89705c1704db2c85be260ab1845a74",
    "039_replicas.sql": "acbd7a0b392e7aff3d600c4395bf255c4df9ef39447330290876bad3353b9e65",
    "040_webhooks.sql": "171139b720e9d6d704791bd7c7f77500dea9c5abef954cb53aa94f3a485b0a91",
    "041_overview.sql": "b32ca1523655e872cdbbf0c01d4d2795268188ffa2e147e0baf087bef3eff6fb",
    "042_shards.sql": "f19a99a7c0441a247cac644f4cd302f097e43aa529915c352db9a1825cf1cd65",
}
"""SHA-256 of the text of each; a new file joins when it is delivered."""


def test_a_delivered_file_is_not_edited() -> None:
    found = {each.name: each.checksum.hex() for each in load_migrations()}
    assert {name: found.get(name) for name in FROZEN} == FROZEN
