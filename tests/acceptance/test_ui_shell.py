"""The page on the real server: signing in, what is let in by name, and Postgres away."""

from __future__ import annotations

import httpx
import pytest

from tests.support.clients import Api, error_of
from tests.support.outage import Outage
from tests.support.server import MnemeServer
