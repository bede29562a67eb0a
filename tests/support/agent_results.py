"""What the tools of an agent return, of our own making: files, settings, logs, JSON, tables, diffs, listings, searches, failed
tests and pages, each with details in it that somebody may ask for much later.

A detail has the number of its result in it, so that it stands nowhere else in a session.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Count = Callable[[str], int]


class Fact(NamedTuple):
    """A question, and the words of which all must stand in an answer."""

    question: str
    needed: tuple[str, ...]


class Result(NamedTuple):
    """What one call of a tool came to."""

    kind: str
    tool: str
    arguments: Mapping[str, Any]
    text: str
    facts: tuple[Fact, ...] = ()


SERVICES, NOUNS, VERBS, PLACES, PEOPLE = map(
    str.split,
    (
        "billing checkout catalog shipping identity ledger mailer pricing returns stock loyalty search",
        "invoice refund parcel voucher basket address receipt session carrier label batch quota digest tariff pallet coupon"
        " shipment ticket profile balance deposit manifest",
        "adjust merge expire route validate enrich archive reconcile publish assign throttle collect",
        "Porto Ghent Turin Lyon Graz Malmo Cork Bilbao Tartu Brno Aarhus Leipzig",
        "Amara Bruno Chidi Daria Elif Femi Greta Hugo Ines Jonas Kaya Lena",
    ),
)
FIRST = 11
"""Number of the first result: with it a detail is no number that stands in the lines around others."""


class Maker:
    """Makes results; the same for the same seed."""

    def __init__(self, seed: int, count: Count) -> None:
        self._chance = random.Random(seed)
        self._count = count

    def make(self, kind: str, number: int, tokens: int) -> Result:
        """The `number`-th result, of some `tokens` tokens."""
        return KINDS[kind](self, number, tokens)

    def before_and_after(self, earlier: Result, number: int) -> tuple[Result, Result]:
        """A file, and the same when somebody has changed what it says and it is read again."""
        (asked, (old,)), other = earlier.facts
        new, rest = f"timeout={number}.75", asked[0].lower() + asked[1:]
        before = Fact(f"Before it was tuned, {rest}", (old,))
        after = Fact(f"Since it was tuned, {rest}", (new,))
        return (
            earlier._replace(kind="code, first", facts=(before, other)),
            earlier._replace(kind="code, again", text=earlier.text.replace(old, new), facts=(after,)),
        )

    def _any(self, words: list[str]) -> str:
        return self._chance.choice(words)

    def _number(self, most: int) -> int:
        return self._chance.randint(2, most)

    def _around(self, line: Callable[[], str], detail: str, tokens: int) -> str:
        """Lines of so many tokens, with the detail somewhere between them."""
        lines: list[str] = []
        left = tokens - self._count(detail)
        while left > 0:
            lines.append(line())
            left -= self._count(lines[-1]) + 1
        lines.insert(self._chance.randint(len(lines) // 5, len(lines)), detail)
        return "\n".join(lines)

    def _sentence(self) -> str:
        subject, other = self._any(NOUNS), self._any(NOUNS)
        return self._any(
            [
                f"Every {subject} belongs to one {other}, which {self._any(SERVICES)} looks up by its number.",
                f"To {self._any(VERBS)} a {subject}, send it to {self._any(SERVICES)} with the {other} that it came with.",
                f"A {subject} that nobody claims is moved to the {other} of {self._any(PLACES)} at the end of the day.",
                f"{self._any(PEOPLE)} looks after the {subject} and answers questions about any {other}.",
            ]
        )

    # --- kinds ---------------------------------------------------------------------------------------------------------

    def code(self, n: int, tokens: int) -> Result:
        noun, path = self._any(NOUNS), f"services/{self._any(SERVICES)}/{self._any(NOUNS)}_{n}.py"
        detail = (
            f'def settle_{noun}(bank: Bank, amount: Decimal) -> Receipt:\n    """Settle a {noun} with the bank."""\n'
            f'    answer = bank.post("/settle", amount=amount, timeout={n}.25)\n    if answer.status == 409:\n'
            f"        raise Closed{n}Account(answer.reference)\n    return Receipt(answer.reference, amount)\n"
        )

        def function() -> str:
            verb, one, other = self._any(VERBS), self._any(NOUNS), self._any(NOUNS)
            return (
                f"def {verb}_{one}({one}: {one.title()}, {other}: {other.title()}, limit: int = {self._number(900)})"
                f' -> {one.title()} | None:\n    """{verb.title()} a {one} by its {other}."""\n'
                f"    if {one}.{other}_count > limit:\n        return None\n"
                f"    found = [each for each in {other}.lines if each.{one}_id == {one}.id]\n"
                f"    {one}.total = sum(each.amount for each in found)\n    return {one}.with_state({verb!r})\n"
            )

        return Result(
            "code", "read_file", {"path": path}, self._around(function, detail, tokens),
            (
                Fact(f"How many seconds may the bank take to settle a {noun} in {path}?", (f"timeout={n}.25",)),
                Fact(f"Which exception comes when the bank answers 409 in {path}?", (f"Closed{n}Account",)),
            ),
        )  # fmt: skip

    def settings(self, n: int, tokens: int) -> Result:
        service = self._any(SERVICES)
        path = f"deploy/{service}/values-{n}.yaml"
        detail = (
            f"  {service}-main:\n    memory_limit: {1000 + n}Mi\n    grace_period_s: {n}7\n    image: {service}:4.{n}.1"
        )

        def group() -> str:
            return (
                f"  {self._any(VERBS)}-{self._any(NOUNS)}:\n    replicas: {self._number(9)}\n    cpu: {self._number(900)}m\n"
                f"    queue: {self._any(NOUNS)}.{self._any(VERBS)}\n    retries: {self._number(9)}"
            )

        return Result(
            "settings", "read_file", {"path": path}, f"workloads:\n{self._around(group, detail, tokens)}",
            (
                Fact(f"What is the memory limit of {service}-main in {path}?", (f"{1000 + n}Mi",)),
                Fact(f"Which image does {service}-main run according to {path}?", (f"{service}:4.{n}.1",)),
            ),
        )  # fmt: skip

    def log(self, n: int, tokens: int) -> Result:
        service, place = self._any(SERVICES), self._any(PLACES)
        minute = iter(range(10**6))

        def stamp() -> str:
            at = next(minute)
            return f"2026-03-{1 + n % 28:02}T{at // 60 % 24:02}:{at % 60:02}:{self._number(59):02}Z"

        def line() -> str:
            level = self._chance.choices(["INFO", "DEBUG", "WARN"], [80, 15, 5])[0]
            return (
                f"{stamp()} {level} {service} {self._any(VERBS)} {self._any(NOUNS)} id={self._number(99999)}"
                f" took={self._number(400)}ms"
            )

        detail = f"{stamp()} ERROR {service} the depot of {place} refused order A-{n}4411: code D{n}-REFUSED, pallet too tall"
        command = f"kubectl logs deploy/{service} --since=1h | tail -n 4000 # {n}"
        asked = f"Which order did the depot of {place} refuse in the log of {service}, and with which code?"
        return Result(
            "log", "run_command", {"command": command}, self._around(line, detail, tokens),
            (Fact(asked, (f"A-{n}4411", f"D{n}-REFUSED")),),
        )  # fmt: skip

    def records(self, n: int, tokens: int) -> Result:
        service, ids = self._any(SERVICES), iter(range(n * 1000, 10**9))

        def record(weight: float | None = None) -> str:
            row = {
                "id": f"P-{next(ids)}",
                "owner": self._any(PEOPLE),
                "city": self._any(PLACES),
                "state": self._any(VERBS),
                "weight_kg": weight or self._number(900),
                "lines": [{"sku": self._any(NOUNS), "count": self._number(40)} for _ in range(2)],
            }
            return json.dumps(row) + ","

        detail = record(float(f"{n}.125"))
        name = json.loads(detail.rstrip(","))["id"]
        text = '{"items": [\n' + self._around(record, detail, tokens).rstrip(",") + f'\n], "page": {n}}}'
        return Result(
            "json", "http_get", {"url": f"https://{service}.example.com/api/parcels?page={n}"}, text,
            (Fact(f"How heavy is the parcel {name}?", (f" {n}.125",)),),
        )  # fmt: skip

    def table(self, n: int, tokens: int) -> Result:
        service = self._any(SERVICES)

        def row() -> str:
            return (
                f"{self._any(PLACES)},{self._any(NOUNS)}-{self._number(999)},{self._any(PEOPLE)},{self._number(500)},"
                f"{self._number(90)}.{self._number(99):02}"
            )

        place = self._any(PLACES)
        detail = f"{place},voucher-x{n},{self._any(PEOPLE)},{n}03,{self._number(90)}.50"
        query = f"SELECT city, sku, seller, units, price FROM {service}.sales WHERE batch = {n}"
        return Result(
            "table", "query", {"sql": query}, f"city,sku,seller,units,price\n{self._around(row, detail, tokens)}",
            (Fact(f"How many units of voucher-x{n} were sold in {place}?", (f"voucher-x{n}", f",{n}03,")),),
        )  # fmt: skip

    def diff(self, n: int, tokens: int) -> Result:
        service = self._any(SERVICES)

        def hunk(change: str | None = None) -> str:
            noun, at = self._any(NOUNS), self._number(400)
            path = f"services/{service}/{noun}_rules.py"
            changed = change or f"-    limit = {self._number(90)}\n+    limit = {self._number(90)}"
            return (
                f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{at},4 +{at},4 @@\n"
                f" def {self._any(VERBS)}_{noun}(self):\n{changed}\n     return self.total\n"
            )

        detail = hunk(f"-    late_fee_days = {self._number(9)}\n+    late_fee_days_{n} = {n}9")
        asked = f"To how many days did the branch tune-{n} change the late fee (late_fee_days_{n})?"
        return Result(
            "diff", "run_command", {"command": f"git diff main..tune-{n}"}, self._around(hunk, detail, tokens),
            (Fact(asked, (f"late_fee_days_{n} = {n}9",)),),
        )  # fmt: skip

    def listing(self, n: int, tokens: int) -> Result:
        folder = f"exports/{self._any(SERVICES)}/{n}"

        def entry() -> str:
            name = f"{self._any(NOUNS)}-{self._any(VERBS)}-{self._number(999)}.parquet"
            return f"-rw-r--r-- 1 app app {self._number(9_000_000):>9} Mar {self._number(28):>2} 04:12 {folder}/{name}"

        detail = f"-rw-r--r-- 1 app app {n}77{self._number(999):03} Mar  9 04:12 {folder}/totals-{n}.parquet"
        size = detail.split()[4]
        return Result(
            "listing", "list_files", {"path": folder}, self._around(entry, detail, tokens),
            (Fact(f"How many bytes has totals-{n}.parquet in {folder}?", (size,)),),
        )  # fmt: skip

    def search(self, n: int, tokens: int) -> Result:
        noun = self._any(NOUNS)

        def match() -> str:
            path = f"services/{self._any(SERVICES)}/{self._any(NOUNS)}.py"
            return f"{path}:{self._number(900)}:    {self._any(VERBS)}_{noun}(basket, {self._any(NOUNS)})"

        detail = f"services/{self._any(SERVICES)}/main_{n}.py:{n}51:    register_{noun}(app, priority={n})"
        asked = f"On which line of main_{n}.py is register_{noun} called?"
        return Result(
            "search", "search", {"pattern": f"_{noun}\\(", "path": f"services#{n}"}, self._around(match, detail, tokens),
            (Fact(asked, (f"main_{n}.py:{n}51",)),),
        )  # fmt: skip

    def failure(self, n: int, tokens: int) -> Result:
        service, noun = self._any(SERVICES), self._any(NOUNS)

        def passed() -> str:
            return (
                f"tests/{service}/test_{self._any(NOUNS)}.py::test_{self._any(VERBS)}_{self._any(NOUNS)}_{self._number(999)}"
                " PASSED"
            )

        name = f"test_total_of_{noun}_{n}"
        detail = (
            f"____ {name} ____\n    def {name}(ledger):\n>       assert ledger.total({noun!r}) == {n}18.40\n"
            f"E       AssertionError: assert {n}18.04 == {n}18.40\ntests/{service}/test_totals.py:{n}: AssertionError"
        )
        text = self._around(passed, detail, tokens) + f"\nFAILED tests/{service}/test_totals.py::{name}\n1 failed"
        return Result(
            "failure", "run_command", {"command": f"pytest tests/{service} -v -k 'not slow{n}'"}, text,
            (Fact(f"Which total did {name} get, and which did it expect?", (f" {n}18.04", f" {n}18.40")),),
        )  # fmt: skip

    def page(self, n: int, tokens: int) -> Result:
        carrier = f"{self._any(PLACES)}post"
        detail = f"\n## Limits of {carrier}\nA key may send {n}60 labels an hour; beyond that it gets 429 for {n}5 seconds.\n"

        def paragraph() -> str:
            head = f"\n## {self._any(NOUNS).title()} and {self._any(NOUNS)}\n" if self._number(6) == 2 else ""
            return head + " ".join(self._sentence() for _ in range(4))

        text = f"# {carrier}: guide for partners, part {n}\n{self._around(paragraph, detail, tokens)}"
        url = f"https://docs.example.com/{carrier.lower()}/part-{n}"
        asked = f"How many labels an hour may a key send to {carrier} according to part {n} of its guide?"
        return Result("page", "fetch", {"url": url}, text, (Fact(asked, (f"{n}60 labels",)),))


KINDS: Mapping[str, Callable[[Maker, int, int], Result]] = MappingProxyType(
    {
        "code": Maker.code,
        "log": Maker.log,
        "json": Maker.records,
        "table": Maker.table,
        "diff": Maker.diff,
        "listing": Maker.listing,
        "settings": Maker.settings,
        "search": Maker.search,
        "failure": Maker.failure,
        "page": Maker.page,
    }
)
