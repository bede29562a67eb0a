"""Every page of /ui, wired."""

from __future__ import annotations

from starlette.types import ASGIApp

from app.api.auth import Authenticator
from app.settings import Settings
from app.ui import calls, conflicts, entities, jobs, keys, memories, overview, sessions, users
from app.ui import settings as settings_page
from app.ui.cookie import Cookies, shared_secret
from app.ui.site import Site


def open_site(settings: Settings, authenticator: Authenticator, api: ASGIApp) -> Site:
    """`api`: what answers under /api/v1."""
    secret = settings.ui_secret.get_secret_value() if settings.ui_secret else shared_secret(settings.data_dir)
    routes = [
        *overview.ROUTES,
        *calls.ROUTES,
        *users.ROUTES,
        *memories.ROUTES,
        *sessions.ROUTES,
        *entities.ROUTES,
        *conflicts.ROUTES,
        *jobs.ROUTES,
        *keys.ROUTES,
        *settings_page.routes(settings),
    ]
    return Site(
        authenticator,
        api,
        Cookies(secret, settings.ui_session_hours * 3600),
        routes,
        open_mode=settings.auth_mode == "open",
        hosts=[settings.host, *settings.hosts],
    )
