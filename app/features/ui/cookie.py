"""Who is signed in: a cookie that this server signed. Nothing of it is stored; who signed out is known to this process."""

from __future__ import annotations

import os
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from msgspec import Struct

from app.errors import NotReady

SECRET_BYTES = 32
"""Entropy of the signing secret, as of a key; written down it has more characters."""
MAX_ENDED = 10_000
"""Sessions that were signed out and are remembered, some 200 bytes each; beyond, the oldest are forgotten."""
NOTICE_S = 60.0
"""Seconds that a notice waits for the page that shows it."""


class SignedIn(Struct, frozen=True):
    """`digest`: SHA-256 of the key, in hex; None: nobody signed in (yet, or in `open` mode, where nobody needs to).
    `token`: what every form sends back, so that no other site can send one."""

    digest: str | None
    token: str


class Cookies:
    """Signs and reads. The digest alone opens nothing: keys are looked up by it, and a request needs the key."""

    def __init__(self, secret: str, life_s: float) -> None:
        """`life_s`: seconds after which one has to sign in again."""
        self._signed_in = URLSafeTimedSerializer(secret, salt="mneme.ui.signed-in")
        self._notice = URLSafeTimedSerializer(secret, salt="mneme.ui.notice")
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.life_s = life_s

    def read(self, cookie: str | None) -> SignedIn | None:
        """None: none of ours, too old, or signed out."""
        found = _load(self._signed_in, cookie, self.life_s)
        return SignedIn(found["k"], found["t"]) if found is not None and found["t"] not in self._ended else None

    def end(self, token: str) -> None:
        """Read no copy of this session's cookie any more, in this process."""
        self._ended[token] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def write(self, digest: str | None) -> tuple[SignedIn, str]:
        """A new one, with a token of its own, and the cookie's value."""
        made = SignedIn(digest, secrets.token_urlsafe(16))
        return made, str(self._signed_in.dumps({"k": made.digest, "t": made.token}))

    def notice(self, text: str) -> str:
        """What was done, to be shown on the next page, as a cookie's value."""
        return str(self._notice.dumps(text))

    def noticed(self, cookie: str | None) -> str | None:
        """Signed, for else anybody who may set a cookie could put words into our mouth."""
        found: str | None = _load(self._notice, cookie, NOTICE_S)
        return found


def _load(serializer: URLSafeTimedSerializer, cookie: str | None, life_s: float) -> Any:
    """What was signed with this serializer, which is given only what `Cookies` writes; None: nothing, or too long ago."""
    try:
        return serializer.loads(cookie, max_age=int(life_s)) if cookie else None
    except BadData:
        return None


def shared_secret(folder: Path) -> str:
    """The secret of all server processes that share `folder`; made by the first, readable by its owner only. Raises NotReady.

    Servers on several machines need MNEME_UI_SECRET instead.
    """
    path, fresh = folder / "ui-secret", folder / f"ui-secret.{secrets.token_hex(8)}"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, path)  # fails where another process was faster: its secret stands
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        found = path.read_text().strip()
    except OSError as error:
        raise NotReady(f"/ui needs a secret under {folder}: {error}. Set MNEME_UI_SECRET, or MNEME_UI=off.") from error
    if len(found) < SECRET_BYTES:
        raise NotReady(f"{path} holds no secret: delete it, and another one is made.")
    return found
