"""Keys, by the names of what carries them and by their own look. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from mneme_replay.paths import MASK

# A header or parameter whose name says that it carries a key, whoever's gateway, cloud or SDK it belongs to. Limits on tokens
# do not, nor does an Idempotency-Key.
_SECRET_NAME = re.compile(r"auth|secret|password|credential|cookie|(?<!idempotency-)key$|token$", re.IGNORECASE)
_CHALLENGES = frozenset({"www-authenticate", "proxy-authenticate"})
KNOWN_NAMES = 1024
"""Names of headers and parameters whose verdict is remembered: clients use some twenty."""

FORMATS = r"""
    -----BEGIN\ (?:[A-Z]+\ )*PRIVATE\ KEY
    # A key begins where no letter or digit of ASCII stands before it, but for that of JSON's \n or \u00e9.
    | (?:(?<![A-Za-z0-9]) | (?<=\\[bfnrt]) | (?<=\\u[0-9A-Fa-f]{4})) (?:
        sk-[A-Za-z0-9_-]{16,}            # OpenAI and many others
        | sk-ant-[A-Za-z0-9_-]{10,}
        | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}   # Stripe
        | (?<!_)mneme_[A-Za-z0-9_-]{16,}
        | (?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[A-Za-z0-9_-]{16,}
        | (?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9_])      # AWS
        | AIza[0-9A-Za-z_-]{30,}           # Google
        | xox[abprs]-[A-Za-z0-9-]{10,}     # Slack
        | hf_[A-Za-z0-9]{20,}
        | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # a JSON web token
        | [a-z][a-z0-9+]{1,15}://[^\s:/@]{1,64}:[^\s@/]{1,128}@    # a URL with a password
    )
"""
"""How keys of the well-known kinds look; for `re.VERBOSE`. Linear in the text."""

_FORMATS = re.compile(FORMATS, re.VERBOSE)
TOLD = 6
"""Characters of a key that are told to say which one it is."""


@lru_cache(maxsize=KNOWN_NAMES)
def is_secret(name: str) -> bool:
    """Whether a header or parameter of that name carries a key."""
    return _SECRET_NAME.search(name) is not None and name.lower() not in _CHALLENGES


def masked_path(path: str) -> str:
    """A path whose query has the values of secret parameters taken out: some servers take their key there."""
    before, mark, query = path.partition("?")
    shown = []
    for part in query.split("&"):
        name, sign, _ = part.partition("=")
        shown.append(f"{name}={MASK}" if sign and is_secret(name) else part)
    return before + mark + "&".join(shown)


def keys_in(text: str) -> Iterator[str]:
    """The beginning of each key in a text."""
    return (found[0][:TOLD] + "…" for found in _FORMATS.finditer(text))


def without_keys(text: str) -> str:
    """The text with as many asterisks in the place of each key: nothing moves. A key is ASCII, but for a password in a URL."""
    return _FORMATS.sub(lambda found: "*" * len(found[0].encode("utf-8", "surrogateescape")), text)
