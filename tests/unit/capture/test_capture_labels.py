"""What labels a header gives."""

from __future__ import annotations

from app.capture.facts import MAX_LABELS, is_label, labels_of
from tests.support.tables import each_of

LONG = b"x" * 257


@each_of(
    ("values", "labels"),
    [
        ([], ()),
        ([b"golden"], ("golden",)),
        ([b" golden , checkout,golden"], ("checkout", "golden")),
        ([b"golden", b"checkout"], ("checkout", "golden")),
        (["größe".encode()], ("größe",)),
        (["größe".encode("latin-1")], ("größe",)),
        # What is no label is left out, and the others stand.
        ([b""], ()),
        ([b", ,"], ()),
        ([LONG + b",short"], ("short",)),
        ([LONG[:256]], ("x" * 256,)),
        ([b"a\tb,bell\x07,\x7f,fine"], ("fine",)),
        (["next\x85line".encode()], ()),
        ([",".join(f"{n:02d}" for n in range(40)).encode()], tuple(f"{n:02d}" for n in range(MAX_LABELS))),
        # A value that the settings took out.
        ([b"***"], ()),
    ],
)
def test_labels_of_a_header(values: list[bytes], labels: tuple[str, ...]) -> None:
    headers = [(b"accept", b"*/*"), *((b"X-Mneme-Label", each) for each in values), (b"x-mneme-user", b"ana")]
    assert labels_of(headers) == labels
    assert all(map(is_label, labels))


@each_of("text", ["", " ", "x ", "a\0b", "\ud800", "x" * 257, "a\nb"])
def test_what_is_no_label(text: str) -> None:
    assert not is_label(text)
