"""What is kept of KubeVirt's functional tests, and the page that is made from it."""

import re
import struct

from garboard_e2e.reference import dns, results, table
from garboard_e2e.reference.portions import in_order, portions
from garboard_e2e.reference.results import Result
from garboard_e2e.reference.suite import Spec

PASSED = Result(
    "[rfe_id:1][crit:high]VM [test_id:7]starts", ("conformance", "sig-compute"), "passed", 31, "abc", "2026-11-26"
)
FAILED = Result("VM stops", ("sig-compute",), "failed", 300, "abc", "2026-11-26", "Timed out | after 300 s")
NEVER = Result("VM moves", ("conformance", "sig-compute"))
MOVES = table.Verdict(re.compile("moves"), "later", "needs live migration")


def test_results_are_read_as_they_were_written() -> None:
    kept = {result.text: result for result in (PASSED, FAILED, NEVER)}
    assert results.parse(results.render(kept.values())) == kept


def test_a_new_result_replaces_the_one_before_and_of_two_with_one_text_the_worst_is_kept() -> None:
    before = {FAILED.text: FAILED, PASSED.text: PASSED}
    passes = results.of(Spec("VM  stops\n", ("sig-compute",), "passed", 2.4, ""), "def", "2026-11-27")
    assert results.merge(before, [passes])[FAILED.text] == Result(
        "VM stops", ("sig-compute",), "passed", 2, "def", "2026-11-27"
    )
    assert results.merge(before, [FAILED, passes])[FAILED.text].state == "failed"
    assert results.merge(before, [passes, FAILED])[FAILED.text].state == "failed"


def test_failures_come_first_and_what_passed_last() -> None:
    known = {result.text: result for result in (PASSED, FAILED, NEVER)}
    texts = [PASSED.text, "unknown", FAILED.text, NEVER.text, PASSED.text]
    assert in_order(texts, known, failures_first=True, new_only=False) == [
        FAILED.text,
        "unknown",
        NEVER.text,
        PASSED.text,
    ]
    assert in_order(texts, known, failures_first=False, new_only=True) == ["unknown", NEVER.text]
    assert in_order(texts, known, failures_first=False, new_only=False) == texts[:-1]


def test_portions_hold_so_many_and_no_more_than_an_argument() -> None:
    assert portions(["a", "b", "c"], 2) == [["a", "b"], ["c"]]
    long = ["x" * 30_000, "y" * 30_000, "z"]
    assert portions(long, 10) == [long[:1], long[1:]]


def test_each_outcome_is_named_with_its_reason() -> None:
    outside = table.Verdict(re.compile("stops"), table.INAPPLICABLE, "tests libvirt")
    assert table.judge(PASSED, [MOVES]) == (table.PASSES, "")
    assert table.judge(FAILED, [MOVES]) == (table.FAILS, "Timed out | after 300 s")
    assert table.judge(FAILED, [outside]) == (table.INAPPLICABLE, "tests libvirt")
    assert table.judge(NEVER, []) == (table.NEVER_RUN, "")
    assert table.judge(NEVER, [MOVES]) == (table.NEVER_RUN, "expected to fail: needs live migration")
    moved = results.of(Spec(NEVER.text, NEVER.labels, "failed", 1, "no"), "abc", "2026-11-26")
    assert table.judge(moved, [MOVES]) == (table.FAILS, "needs live migration; not yet")
    skipped = results.of(Spec(NEVER.text, NEVER.labels, "skipped", 1, "no IPv6"), "abc", "2026-11-26")
    assert table.judge(skipped, []) == (table.INAPPLICABLE, "the test leaves itself out: no IPv6")


def test_the_table_counts_each_group_and_lists_conformance() -> None:
    made = table.render([PASSED, FAILED, NEVER], [MOVES])
    assert "| label `conformance` | 1 | 0 | 0 | 1 | 2 |\n" in made
    assert "| sig-compute | 1 | 1 | 0 | 1 | 3 |\n" in made
    assert "| VM [test_id:7]starts | passes, 2026-11-26 |  |\n" in made
    assert "VM stops" not in made


def query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, dns.INTERNET)


def test_names_are_answered_as_a_resolver_reads_them() -> None:
    asked = query("web.shop.svc.cluster.local", dns.A)
    assert dns.question(asked) == ("web.shop.svc.cluster.local", dns.A, len(asked))
    known = dns.answer(asked, ["10.96.0.7"])
    assert struct.unpack_from("!HHHH", known) == (7, 0x8500, 1, 1)
    assert known[12 : len(asked)] == asked[12:]
    assert known.endswith(bytes([10, 96, 0, 7]))
    assert struct.unpack_from("!HHHH", dns.answer(asked, None)) == (7, 0x8503, 1, 0)
    # An address of the other family: the name is known, and has none.
    assert struct.unpack_from("!HHHH", dns.answer(query("web.shop.svc.cluster.local", 28), ["10.96.0.7"])) == (
        7,
        0x8500,
        1,
        0,
    )


def test_the_page_is_what_the_results_say() -> None:
    page = table.PAGE.read_text()
    known = results.load()
    assert known, f"there is no {results.FILE}"
    assert table.page_with(page, table.render(known.values(), table.verdicts())) == page, "run scripts/reference-table"


def test_every_verdict_is_about_a_specification() -> None:
    texts = list(results.load())
    assert [each.pattern.pattern for each in table.verdicts() if not any(map(each.pattern.search, texts))] == []
