"""Settings that earlier versions had, each with what takes its place.

Each constant stands beside the code that uses it, with its unit and its reason. A command that finds one of these names refuses
to start (`app/console.py`), for the value would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

REMOVED_SETTINGS: Mapping[str, str] = {
    # The database
    "replica_wait_ms": "a standby is waited for 20 ms, or 4 % of MNEME_RETRIEVAL_DEADLINE_MS where that is longer.",
    "embedded_port": "the embedded Postgres takes any free port and keeps it.",
    "pool_write_size": "MNEME_POOL_SIZE sets the connections of each pool.",
    "pool_history_size": "MNEME_POOL_SIZE sets the connections of each pool.",
    "pool_memory_size": "MNEME_POOL_SIZE sets the connections of each pool.",
    "pool_timeout_ms": "a request waits 1,000 ms for a connection.",
    "pool_background_timeout_ms": "callers of /api/v1 wait 5,000 ms for a connection.",
    "start_wait_s": "a command waits 60 s for the database.",
    "statement_timeout_ms": "a statement of a request takes at most 5,000 ms.",
    "background_statement_timeout_ms": "a statement of the background pool takes at most 30,000 ms.",
    "session_ttl_days": "a session that is untouched for 90 days is expired.",
    # Upstreams
    "connect_timeout_s": "a connection to an upstream may take 10 s.",
    "retry_statuses": "429, 502 and 503 lead to another attempt or a fallback.",
    "retry_wait_s": "the second attempt comes after 0.5 s, each later one after twice the wait.",
    "retry_wait_max_s": "no wait between attempts is longer than 8 s.",
    "breaker_failures": "an upstream is left alone after 5 failures in a row.",
    "breaker_open_s": "an upstream that failed is left alone for 5 s.",
    "default_context_window": "a model that nothing knows has 8,192 tokens; MNEME_MODEL_WINDOWS names others.",
    "default_response_tokens": "4,096 tokens are kept for an answer without a limit; `max_tokens` in the request sets another.",
    # Memory
    "index_items": "a server keeps 100,000 items of one user; MNEME_INDEX_CACHE_MB=0 keeps nothing.",
    "profile_budget_tokens": "the tenant's profile takes at most 200 tokens.",
    "facts_budget_tokens": "facts take at most 200 tokens.",
    "domain_budget_tokens": "the business's own database takes at most 2,000 tokens.",
    "conflicts_budget_tokens": "conflicts take at most 200 tokens.",
    "cards_budget_tokens": "cards take at most 800 tokens.",
    "history_turns": "as many turns as fit are supplied; MNEME_HISTORY_BUDGET_TOKENS bounds them.",
    "forget_most": "a command in a chat hides at most 20 items without asking first.",
    "questions_per_turn": "a prompt asks to have at most one memory confirmed.",
    "diversity": "memories are chosen by score alone (there is no MMR).",
    "chat_learn_wait_ms": "POST /api/v1/chat waits 2,000 ms for what is learned, or not at all with `wait: false`.",
    "domain_deadline_ms": "a prompt waits 50 ms for the business's own database, or a tenth of MNEME_RETRIEVAL_DEADLINE_MS.",
    "embedder_folder": "MNEME_EMBEDDER=minilm takes the installed model; any other is served by an endpoint "
    "(MNEME_EMBEDDER=openai, MNEME_EMBEDDER_BASE_URL).",
    "embedder_timeout_s": "a request to the embeddings endpoint takes at most 30 s.",
    "paging_deadline_ms": "paging may take 1,000 ms, or MNEME_RETRIEVAL_DEADLINE_MS where that is longer.",
    # Server
    "otel_users": "traces never have the user's id.",
    "ui_session_hours": "one signs in to /ui again after 12 hours.",
    "key_cache_s": "a checked key stays valid for 10 s without a look-up.",
    "keys_away_s": "a sealed key is good for a day after the database was last asked for it.",
    "budget_without_database": "keys with a budget get 503 while the database is away.",
    # Recording
    "spool_segment_bytes": "the journal of running calls has no size of its own to set.",
    "commit_queue": "256 turns of a process may wait to be written.",
    "commit_timeout_ms": "a turn's transaction begins within 5,000 ms.",
    "repeat_wait_s": "a repeated Idempotency-Key waits 10 s for the call in flight.",
    "capture_max_bytes": "bodies of the other /v1 paths are kept up to 16 MiB.",
    "capture_off_tenants": "keys that are made with `mneme keys create --no-capture` are not captured.",
    "job_attempts": "a job is tried 5 times.",
    "webhook_attempts": "a webhook is tried 10 times, over three days.",
    "webhook_summary_s": "one webhook tells of the degraded requests of a tenant's minute.",
}  # fmt: skip
"""Names in lower case without the prefix, each with one sentence about what holds instead."""
