"""/api/v1/keys and /api/v1/tenant: the keys of a tenant and what they may use, and what the tenant says of itself.

Keys are for whoever may manage them: see `check_admin`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import DEFAULT_PAGE, Cursor, Dated, Limit, Model, Name, UserName, Word, clean, decode_cursor, paged
from app.api.scope import Admitted, CallerScope, Gate
from app.clock import Clock
from app.errors import BadRequest, Forbidden, NotFound
from app.gateway.identify import Principal
from app.sources import Price
from app.store.tenancy import (
    MICROCENTS_PER_DOLLAR,
    NO_LIMITS,
    USUAL_PERIOD,
    Instructions,
    KeyInfo,
    Period,
    Tenancy,
    microcents,
)


def check_admin(scope: CallerScope) -> None:
    """Keys are managed with the scope `admin`, or by a key that may do all: one without scopes, user and limits. A key with
    limits could take them away from itself."""
    if not manages(scope.principal):
        raise Forbidden(
            "This takes a key with the scope `admin`, made for no single user; or one that may do all, without limits.",
            code="missing_scope",
        )


def manages(principal: Principal) -> bool:
    """Whether this is somebody who may manage the tenant's keys (see `check_admin`)."""
    plain = not principal.scopes and not (principal.limits is not None and principal.limits.limiting)
    return principal.user_external_id is None and ("admin" in principal.scopes or plain)


# --- keys ----------------------------------------------------------------------------------------------------------------

_LONGEST_LIFE = timedelta(days=365 * 100)
_Count = Annotated[int, Field(strict=True)]
_Dollars = Annotated[float, Field(allow_inf_nan=False)]


class LimitsIn(Model):
    """What a key may use. A field that is left out stays as it is; null takes a limit away."""

    requests_per_minute: _Count | None = None
    tokens_per_minute: _Count | None = None
    token_budget: _Count | None = Field(None, description="Tokens of prompts and answers in one `token_period`.")
    token_period: Period = USUAL_PERIOD
    money_budget_usd: _Dollars | None = Field(None, description="US dollars in one `money_period`.")
    money_period: Period = USUAL_PERIOD
    models: list[Word] = Field([], description="Models that it may call: names, or patterns with `*`; empty: any.")
    capture: bool = Field(True, description="Whether its calls may be captured.")
    paging: bool | None = Field(
        None, description="Whether its calls are paged, where they and their sessions do not say; null: as the server."
    )
    price: Price | None = Field(
        None, description="What a token of memory costs, where a call does not say; null: as the server."
    )

    def change(self) -> dict[str, Any]:
        """The fields of `KeyLimits` that were given. Raises BadRequest."""
        given = self.model_dump(exclude_unset=True)
        if "money_budget_usd" in given:
            dollars = given.pop("money_budget_usd")
            given["money_budget"] = None if dollars is None else microcents(dollars)
        if "models" in given:
            given["models"] = tuple(given["models"])
        return given


class KeyIn(Model):
    """A key to make."""

    name: Name
    user: UserName | None = Field(None, description="Make it a key for this one user.")
    scopes: list[Word] = Field([], description="proxy, read, write, admin; empty: all.")
    expires_at: Dated | None = None
    limits: LimitsIn = LimitsIn()


class KeyPatch(Model):
    """What to change; a field that is left out stays."""

    expires_at: Dated | None = None
    limits: LimitsIn = LimitsIn()


class LimitsOut(BaseModel):
    requests_per_minute: int | None
    tokens_per_minute: int | None
    token_budget: int | None
    token_period: str
    money_budget_usd: float | None
    money_period: str
    models: list[str]
    capture: bool
    paging: bool | None
    price: str | None


class KeyOut(BaseModel):
    """A key: never the key itself. `hint` is its beginning."""

    id: UUID
    name: str
    hint: str
    user: str | None
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    limits: LimitsOut


class KeyMade(KeyOut):
    """`key`: shown this once; only its SHA-256 is kept."""

    key: str


class KeyPage(BaseModel):
    keys: list[KeyOut]
    next: str | None


class Revoked(BaseModel):
    id: UUID
    revoked: bool


def keys_router(gate: Gate, tenancy: Tenancy, clock: Clock) -> APIRouter:
    """The routes of /api/v1/keys."""
    routes = _KeyRoutes(tenancy, clock)
    router = gate.router("keys")
    router.add_api_route("/keys", routes.listing, methods=["GET"])
    router.add_api_route("/keys", routes.create, methods=["POST"], status_code=201)
    router.add_api_route("/keys/{key}", routes.change, methods=["PATCH"])
    router.add_api_route("/keys/{key}", routes.revoke, methods=["DELETE"])
    return router


class _KeyRoutes(Struct, frozen=True):
    tenancy: Tenancy
    clock: Clock

    async def listing(self, scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> KeyPage:
        """List the tenant's keys, newest first; ended ones too."""
        check_admin(scope)
        (before,) = decode_cursor(cursor, (UUID,)) or (None,)
        rows = await self.tenancy.keys_of(scope.tenant, before=before, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (str(row.key_id),))
        return KeyPage(keys=[KeyOut.model_validate(_fields(row)) for row in page], next=following)

    async def create(self, scope: Admitted, body: KeyIn) -> KeyMade:
        """Make a key (201). It is shown this once."""
        check_admin(scope)
        key, row = await self.tenancy.create_key(
            scope.tenant,
            body.name,
            user=body.user,
            expires_at=self._expiry(body.expires_at),
            scopes=body.scopes,
            limits=NO_LIMITS.changed(body.limits.change()),
        )
        return KeyMade.model_validate(_fields(row) | {"key": key})

    async def change(self, scope: Admitted, key: UUID, body: KeyPatch) -> KeyOut:
        """Change what a key may use, and when it ends. Servers notice within ten seconds."""
        check_admin(scope)
        row = await self.tenancy.change_key(
            key, body.limits.change(), tenant=scope.tenant, expires_at=self._expiry(body.expires_at)
        )
        if row is None:
            raise NotFound("There is no such key.")
        return KeyOut.model_validate(_fields(row))

    async def revoke(self, scope: Admitted, key: UUID) -> Revoked:
        """End a key. Servers notice within ten seconds."""
        check_admin(scope)
        if not await self.tenancy.revoke_key(key, scope.tenant):
            raise NotFound("There is no such key that is still good.")
        return Revoked(id=key, revoked=True)

    def _expiry(self, moment: datetime | None) -> datetime | None:
        if moment is not None and not timedelta(0) < moment - self.clock.now() <= _LONGEST_LIFE:
            raise BadRequest("A key expires in the future, within a hundred years.", param="expires_at")
        return moment


def _fields(row: KeyInfo) -> dict[str, Any]:
    money = row.limits.money_budget
    dollars = money / MICROCENTS_PER_DOLLAR if money is not None else None
    return asdict(row) | {
        "id": row.key_id,
        "user": row.user_external_id,
        "limits": asdict(row.limits) | {"money_budget_usd": dollars},
    }


# --- instructions and profile --------------------------------------------------------------------------------------------

_MAX_INSTRUCTIONS_CHARS = 8000
"""Longest instructions, characters: some 2,000 tokens, which every call of the helper LLM costs."""
_MAX_PROFILE_CHARS = 4000
"""Longest profile, characters: some 1,000 tokens, five times its section of a prompt."""
_Text = Annotated[
    str, StringConstraints(max_length=_MAX_INSTRUCTIONS_CHARS, strip_whitespace=True), AfterValidator(clean)
]
_Profile = Annotated[
    str, StringConstraints(max_length=_MAX_PROFILE_CHARS, strip_whitespace=True), AfterValidator(clean)
]


class InstructionsIn(Model):
    """What extraction is told besides its own rules; null or blank: nothing."""

    instructions: _Text | None = Field(description="Such as: Remember which products a user asks about, never prices.")


class InstructionsOut(BaseModel):
    instructions: str | None
    updated_at: datetime | None


class ProfileIn(Model):
    """What every prompt is told about the tenant, line by line, the most important first; null or blank: nothing."""

    profile: _Profile | None = Field(description="Such as: - Business: Mumbai Bakery (food & bakery)")


class ProfileOut(BaseModel):
    profile: str | None
    updated_at: datetime | None


def tenant_router(gate: Gate, instructions: Instructions) -> APIRouter:
    """The routes of /api/v1/tenant."""
    routes = _InstructionsRoutes(instructions)
    router = gate.router("tenant")
    path = "/tenant/instructions"
    router.add_api_route(path, routes.get, methods=["GET"])
    router.add_api_route(path, routes.put, methods=["PUT"])
    path = "/tenant/profile"
    router.add_api_route(path, routes.get_profile, methods=["GET"])
    router.add_api_route(path, routes.put_profile, methods=["PUT"])
    return router


class _InstructionsRoutes(Struct, frozen=True):
    instructions: Instructions

    async def get(self, scope: Admitted) -> InstructionsOut:
        """Read the tenant's instructions. Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and these are the tenant's.")
        text, at = await self.instructions.read(scope.tenant)
        return InstructionsOut(instructions=text, updated_at=at)

    async def put(self, scope: Admitted, body: InstructionsIn) -> InstructionsOut:
        """Change them, with a key that may manage the tenant. They are read by the helper LLM for every turn that is learned
        from then on; extraction by rules has no use for them."""
        check_admin(scope)
        text = body.instructions or None
        at = await self.instructions.write(scope.tenant, text)
        return InstructionsOut(instructions=text, updated_at=at)

    async def get_profile(self, scope: Admitted) -> ProfileOut:
        """Read the tenant's profile (seed 001 §6, step 2). Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and this is the tenant's.")
        text, at = await self.instructions.read_profile(scope.tenant)
        return ProfileOut(profile=text, updated_at=at)

    async def put_profile(self, scope: Admitted, body: ProfileIn) -> ProfileOut:
        """Change it, with a key that may manage the tenant. From then on the memory blocks of its users' conversations begin
        with it, as quoted data, within 200 tokens; those that have another one in their prompts begin their
        blocks anew."""
        check_admin(scope)
        text = body.profile or None
        at = await self.instructions.write_profile(scope.tenant, text)
        return ProfileOut(profile=text, updated_at=at)
