"""What was seen, kept as JSON and told: as a table on a terminal, and as docs/generated/conformance.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from tests.conformance.checks import AREAS, Check, Result, short, told
from tests.conformance.contenders import CONTENDERS

RESULTS = Path(__file__).parent / "results"
SEEN_CHARACTERS = 200
"""Of one difference, on the page."""
_CHANCE = [
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b"), "UUID"),
    (re.compile(r"\bkey-\d+-\d+\b"), "key-1"),
    (re.compile(r"\b(chatcmpl|req|resp)-\w{20,}"), r"\1-ID"),
    (re.compile(r"\b1(?!700000000)[78]\d{8}\b"), "TIME"),
]
"""What is another one in every run, and would hide what is not."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Report:
    """One contender's results. `name` is a contender's, or a base URL."""

    name: str
    title: str
    version: str
    settings: str
    results: list[Result]
    why_not: str = ""
    """Why it was not tried."""

    def document(self) -> dict[str, object]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Report:
        """From what was kept."""
        given = dict(document)
        results = given.pop("results")
        assert isinstance(results, list)
        return cls(results=[Result(**each) for each in results], **given)  # type: ignore[arg-type]

    @property
    def different(self) -> list[Result]:
        return [each for each in self.results if not each.same]


def steady(text: str) -> str:
    """Without what chance made; control characters are written out."""
    for pattern, instead in _CHANCE:
        text = pattern.sub(instead, text)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def keep(report: Report, folder: Path = RESULTS) -> Path:
    """Write a contender's results where the page is made from."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{report.name}.json"
    path.write_text(json.dumps(report.document(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def kept(folder: Path = RESULTS) -> list[Report]:
    """All that is kept, in the order of the contenders."""
    found = {path.stem: Report.of(json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.json")}
    return [found[name] for name in CONTENDERS if name in found]


# --- on a terminal --------------------------------------------------------------------------------------------------------


def table(report: Report, checks: Sequence[Check]) -> Table:
    """The differences and notes of a run; what is the same is counted."""
    by_name = {each.name: each for each in report.results}
    same = len(report.results) - len(report.different)
    made = Table(
        title=f"{report.title} {report.version}: {same} of {len(report.results)} the same", title_justify="left"
    )
    for column in ("check", "right", "seen"):
        made.add_column(column, overflow="fold")
    for check in checks:
        result = by_name.get(check.name)
        if result is None or (result.same and not result.notes):
            continue
        seen = [*told(result.differences), *(f"(noted) {each}" for each in result.notes)]
        made.add_row(check.name, check.right, "\n".join(seen), style="" if result.same else "red")
    return made


# --- as a page --------------------------------------------------------------------------------------------------------------


def page(reports: Sequence[Report], checks: Sequence[Check]) -> str:
    """docs/generated/conformance.md."""
    tried = [each for each in reports if each.results]
    lines = [
        "# What a proxy leaves alone",
        "",
        "Made by `python -m tests.conformance --all --write docs/generated/conformance.md`. Do not edit.",
        "",
        f"{len(checks)} checks on the wire, between a client that sees every byte and a recording, scripted upstream: what the",
        "upstream got, and what came back. Each follows from the documentation of OpenAI's or Anthropic's API, from that",
        "of HTTP, or from plain byte transparency, and says which. Any proxy can be tried, with its own upstream set to `http://127.0.0.1:9100/v1`:",
        "`python -m tests.conformance --base-url http://127.0.0.1:8080/v1 --upstream-port 9100`. Gateways that translate",
        "between providers, or keep keys of their own, do on purpose some of what is counted here.",
        "",
        "Noted, and not counted: the borders of chunks, added headers, and in which coding the upstream is asked to answer",
        "(RFC 9110 §12.5.3). Mneme asks for none where it records an answer, because it reads it; else for the client's.",
        "",
        "## Who was tried",
        "",
        "Each with what its own documentation recommends to those who want little changed.",
        "",
        "| proxy | version | settings | the same | different |",
        "| --- | --- | --- | --- | --- |",
        *(_contender(each) for each in reports),
        "",
        "What comes only as a container, or as a program that neither PyPI nor npm holds, is not tried.",
        "",
        "## By area",
        "",
        _row("", *(each.title for each in tried)),
        _row("---", *("---" for _ in tried)),
        *_areas(tried, checks),
        "",
        "## Check by check",
        "",
        "✓ the same, ✗ different; what was seen is listed below.",
        "",
    ]
    for area, title in AREAS.items():
        own = [each for each in checks if each.area == area]
        lines += [f"### {title}", "", *_matrix(tried, own), ""]
    lines += ["## What was seen", ""]
    for report in tried:
        lines += [f"### {report.title} {report.version}".rstrip(), "", *_seen(report), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Text that is no markup of the page's."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _contender(report: Report) -> str:
    if report.why_not:
        return _row(report.title, report.version, f"not tried: {_cell(report.why_not)}", "", "")
    different = len(report.different)
    same = len(report.results) - different
    return _row(report.title, report.version, report.settings, str(same), str(different))


def _areas(tried: Sequence[Report], checks: Sequence[Check]) -> list[str]:
    rows = []
    for area, title in AREAS.items():
        names = {each.name for each in checks if each.area == area}
        sames = [sum(each.same for each in report.results if each.name in names) for report in tried]
        rows.append(_row(title, *(f"{same} of {len(names)}" for same in sames)))
    return rows


def _matrix(tried: Sequence[Report], checks: Sequence[Check]) -> list[str]:
    by_name = [{each.name: each for each in report.results} for report in tried]
    rows = [_row("check", "what is right", "source", *(each.title for each in tried))]
    rows.append(_row("---", "---", "---", *("---" for _ in tried)))
    for check in checks:
        marks = [("✓" if each[check.name].same else "✗") if check.name in each else "–" for each in by_name]
        rows.append(_row(f"`{check.name.partition('.')[2]}`", _cell(check.right), _cell(check.source), *marks))
    return rows


def _seen(report: Report) -> list[str]:
    lines = []
    for result in report.results:
        what = [short(steady(each), SEEN_CHARACTERS) for each in told(result.differences)]
        what += [f"noted: {short(steady(each), SEEN_CHARACTERS)}" for each in result.notes]
        if what:
            lines.append(f"- `{result.name}`: {_cell('; '.join(what))}")
    return lines or ["No difference, and nothing to note."]
