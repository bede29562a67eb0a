"""What is kept of texts, until somebody is erased."""

from __future__ import annotations

from app.text_cache import forget, of_texts


def test_a_text_is_read_once_until_all_is_forgotten() -> None:
    read: list[str] = []

    @of_texts(2)
    def words(text: str) -> int:
        read.append(text)
        return len(text.split())

    assert [words(each) for each in ("one", "one", "two words", "one")] == [1, 1, 2, 1]
    assert read == ["one", "two words"]
    forget()
    assert words("one") == 1
    assert read == ["one", "two words", "one"]
