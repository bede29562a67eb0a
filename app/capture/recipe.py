"""A request body as a recipe: the elements of its `messages` array, each kept once, and the bytes around them.

A client that manages its own history sends the whole transcript every time. Kept whole, a conversation of n turns would
take n² of space; as a chain of what each request added, it takes what was said. The leading system messages stand apart
from the chain: they often carry a clock, and what changes at the front would make all that follows new. Everything here is
plain bytes: joined again they are the body, to the last space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b, sha256

from msgspec import Struct

HASH_BYTES = 16
"""Length of blob and chain hashes: 128 bits, enough among one user's messages."""


class Position(Struct, frozen=True):
    """A place in a chain that is stored: the hash over its first `count` elements."""

    chain: bytes
    count: int


class Node(Struct, frozen=True):
    """One row of `request_chains`: what it adds to its parent, behind it (`blobs`) and in front of it (`lead`)."""

    chain: bytes
    parent: bytes | None
    blobs: tuple[bytes, ...]
    lead: tuple[bytes, ...] = ()


class Recipe(Struct, frozen=True):
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
    lead: int = 0,
) -> Recipe:
    """The recipe of `body`.

    `array_start` is the offset just after the `[`; `spans` the (start, end) of each element, the first `lead` of which are
    kept apart. The rest is a chain: `known` is a stored position to build on, used when its first elements are the same;
    `stable`: how many elements in all the next request will probably repeat byte for byte (default: all of them).
    """
    digest = sha256(body).digest()
    if not spans:
        return Recipe(body, b"", None, 0, digest, len(body), (), {}, None)
    elements = list(_elements(body, array_start, spans))
    front, elements = elements[:lead], elements[lead:]
    chains = _chain(elements)
    at, parent = 0, None
    if known is not None and 0 < known.count <= len(elements) and chains[known.count] == known.chain:
        at, parent = known.count, known.chain
    cut = len(elements) if stable is None else max(at, min(stable - len(front), len(elements)))
    nodes: list[Node] = []
    blobs: dict[bytes, bytes] = {}
    for end in sorted({cut, len(elements)}):
        if end > at:
            hashes = _keep(elements[at:end], blobs)
            nodes.append(Node(chains[end], parent, hashes))
            at, parent = end, chains[end]
    top = chains[-1]
    if front:
        top = _fronted(front, top)
        nodes.append(Node(top, parent, (), _keep(front, blobs)))
    return Recipe(
        prefix=body[:array_start],
        suffix=body[spans[-1][1] :],
        chain=top,
        count=len(spans),
        sha256=digest,
        size=len(body),
        nodes=tuple(nodes),
        blobs=blobs,
        resume=Position(chains[cut], cut) if cut else None,
    )


def _chain(elements: Sequence[bytes]) -> list[bytes]:
    """The hash over the first 0, 1, 2 … elements."""
    running = blake2b(digest_size=HASH_BYTES)
    chains = [running.digest()]
    for element in elements:
        running.update(len(element).to_bytes(4, "big"))
        running.update(element)
        chains.append(running.digest())
    return chains


def _fronted(front: Sequence[bytes], chain: bytes) -> bytes:
    """The hash of a chain with something in front of it."""
    return blake2b(_chain(front)[-1] + chain, digest_size=HASH_BYTES, person=b"mneme front").digest()


def _keep(elements: Sequence[bytes], blobs: dict[bytes, bytes]) -> tuple[bytes, ...]:
    hashes = tuple(blob_hash(element) for element in elements)
    blobs.update(zip(hashes, elements, strict=True))
    return hashes


def rebuild(prefix: bytes, elements: Sequence[bytes], suffix: bytes, digest: bytes) -> bytes:
    """The body again. Raises ValueError when it is not the one whose SHA-256 was kept."""
    body = b"".join([prefix, *elements, suffix])
    if sha256(body).digest() != digest:
        raise ValueError("the stored parts of this request do not make the body that was captured")
    return body
