"""The merge tables of OpenAI's present encodings, and how they are loaded without a network.

Each file has the name that tiktoken's own cache look-up gives it, the SHA-1 of its address:

    fb374d419588a4632f3f557e76b4b70aebbca790   o200k_base (gpt-4o and later)
    9b5ad71b2ce5302211f9c61530b329a4922fc6a4   cl100k_base (gpt-4, gpt-3.5-turbo, text-embedding-3)

With `TIKTOKEN_CACHE_DIR` set to this folder, other users of tiktoken find them too.
"""

from __future__ import annotations

import hashlib
from binascii import a2b_base64
from functools import cache
from pathlib import Path
from types import FunctionType

import tiktoken
from tiktoken.load import check_hash
from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS  # type: ignore[import-untyped]  # it ships no type marks

from app.errors import NotReady

FOLDER = Path(__file__).parent


@cache
def load(name: str, folder: Path = FOLDER) -> tiktoken.Encoding:
    """The encoding `name`, built once a process from tiktoken's own constructor data and the shipped merges; some 0.2 s of CPU.

    tiktoken's constructor calls the module function `load_tiktoken_bpe(address, expected_hash)`, which would look into
    a directory named by the environment, and then download. The constructor runs here with that one name bound to a
    reader of `folder`: nothing global changes, and pattern, special tokens, address and hash stay tiktoken's.

    Raises `NotReady` when the file is missing or does not have the SHA-256 that tiktoken expects.
    """

    def read(address: str, expected_hash: str | None = None) -> dict[bytes, int]:
        return _merges(folder / hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest(), expected_hash)

    constructor = ENCODING_CONSTRUCTORS[name]
    assert isinstance(constructor, FunctionType)
    bound = FunctionType(constructor.__code__, {**constructor.__globals__, "load_tiktoken_bpe": read})
    encoding = tiktoken.Encoding(**bound())
    encoding._mergeable_ranks = {}  # kept for pickling alone: of o200k a third of what it takes, 26 MB
    return encoding


def _merges(path: Path, expected_hash: str | None) -> dict[bytes, int]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotReady(f"the token encoding {path.name} is missing from the installation ({error})") from error
    if expected_hash is None or not check_hash(data, expected_hash):
        raise NotReady(f"the token encoding {path.name} is not the one that the installed tiktoken expects")
    fields = data.split()  # token, rank, token, rank, …
    return dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
