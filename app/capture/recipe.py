"""A request body as a recipe: the elements of its `messages` array, each kept once, and the bytes around them.

A client that manages its own history sends the whole transcript every time. Kept whole, a conversation of n turns would
take n² of space; as a chain of what each request added, it takes what was said. Everything here is plain bytes: joined
again they are the body, to the last space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256

HASH_BYTES = 16
"""Length of blob and chain hashes: 128 bits, enough among one user's messages."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a chain that is stored: the hash over its first `count` elements."""

    chain: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Node:
    """One row of `request_chains`: what it adds to its parent."""

    chain: bytes
    parent: bytes | None
    blobs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """`prefix` + elements of the chain + `suffix` = the body; `nodes` and `blobs` are what is not stored yet.

    `resume` is the position from which the next request of the conversation is likely to go on.
    """

    prefix: bytes
    suffix: bytes
    chain: bytes | None
    count: int
    sha256: bytes
    size: int
    nodes: tuple[Node, ...]
    blobs: dict[bytes, bytes]
    resume: Position | None


def blob_hash(body: bytes) -> bytes:
    """The key of one element."""
    return blake2b(body, digest_size=HASH_BYTES).digest()


def _elements(body: bytes, start: int, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Each element with the separator before it."""
    at = start
    for _, end in spans:
        yield body[at:end]
        at = end


def make(
    body: bytes,
    array_start: int,
    spans: Sequence[tuple[int, int]],
    known: Position | None = None,
    stable: int | None = None,
) -> Recipe:
    """The recipe of `body`.

    `array_start` is the offset just after the `[`; `spans` the (start, end) of each element. `known` is a stored position
    to build on, used when this body's first elements are the same. `stable`: how many elements the next request will
    probably repeat byte for byte (default: all of them).
    """
    digest = sha256(body).digest()
    if not spans:
        return Recipe(body, b"", None, 0, digest, len(body), (), {}, None)
    elements = list(_elements(body, array_start, spans))
    running = blake2b(digest_size=HASH_BYTES)
    chains = [running.digest()]
    for element in elements:
        running.update(len(element).to_bytes(4, "big"))
        running.update(element)
        chains.append(running.digest())

    at, parent = 0, None
    if known is not None and 0 < known.count <= len(elements) and chains[known.count] == known.chain:
        at, parent = known.count, known.chain
    cut = len(elements) if stable is None else max(at, min(stable, len(elements)))
    nodes: list[Node] = []
    blobs: dict[bytes, bytes] = {}
    for end in sorted({cut, len(elements)}):
        if end > at:
            hashes = tuple(blob_hash(element) for element in elements[at:end])
            blobs.update(zip(hashes, elements[at:end], strict=True))
            nodes.append(Node(chains[end], parent, hashes))
            at, parent = end, chains[end]
    return Recipe(
        prefix=body[:array_start],
        suffix=body[spans[-1][1] :],
        chain=chains[-1],
        count=len(elements),
        sha256=digest,
        size=len(body),
        nodes=tuple(nodes),
        blobs=blobs,
        resume=Position(chains[cut], cut) if cut else None,
    )


def rebuild(prefix: bytes, elements: Sequence[bytes], suffix: bytes, digest: bytes) -> bytes:
    """The body again. Raises ValueError when it is not the one whose SHA-256 was kept."""
    body = b"".join([prefix, *elements, suffix])
    if sha256(body).digest() != digest:
        raise ValueError("the stored parts of this request do not make the body that was captured")
    return body
