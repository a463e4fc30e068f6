"""What is kept of KubeVirt's functional tests, how they are called, and the pages that are made from their results."""

import json
import pathlib
import re

import pytest

from garboard_e2e.cluster import emptying
from garboard_e2e.cluster.names import INSTALLED_IN
from garboard_e2e.outcome import Failure
from garboard_e2e.places import REPOSITORY
from garboard_e2e.reference import __main__ as program
from garboard_e2e.reference import dns, handler, results, suite, table, verdicts
from garboard_e2e.reference.campaign import NAMESPACES, Outcome
from garboard_e2e.reference.portions import in_order, portions
from garboard_e2e.reference.results import Result
from garboard_e2e.reference.suite import Spec, Suite

PASSED = Result(
    "[rfe_id:1][crit:high]VM [test_id:7]starts", ("conformance", "sig-compute"), "passed", 31, "abc", "2026-11-26"
)
FAILED = Result("VM stops", ("sig-compute",), "failed", 300, "abc", "2026-11-26", "Timed out | after 300 s")
NEVER = Result("VM moves", ("conformance", "sig-compute"))
PENDING = Result("VM waits", ("sig-network",), "pending")
SKIPPED = Result("VM speaks IPv6", ("sig-network",), "skipped", 1, "abc", "2026-11-26", "no <IPv6> here")
MOVES = verdicts.Verdict(re.compile("moves"), "later", "needs live migration")
NOTHING: list[verdicts.Verdict] = []


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
    outside = verdicts.Verdict(re.compile("stops"), "libvirt", "reads its log")
    elsewhere = verdicts.Verdict(re.compile("label:sig-compute"), "cluster", "a third node")
    played = verdicts.Verdict(re.compile("starts|stops"), "stand-in", "the operator does nothing")
    of_stand_in = (
        verdicts.INAPPLICABLE,
        "tests what only stands for a part of KubeVirt: the operator does nothing",
    )
    for result, known, expected in (
        (PASSED, [MOVES], (verdicts.PASSES, "")),
        (PASSED, [elsewhere], (verdicts.PASSES, "")),
        (FAILED, [MOVES], (verdicts.FAILS, "Timed out | after 300 s")),
        (FAILED, [outside], (verdicts.INAPPLICABLE, "tests libvirt: reads its log")),
        (FAILED, [elsewhere], (verdicts.INAPPLICABLE, "needs what the test cluster has not: a third node")),
        (PASSED, [played], of_stand_in),
        (FAILED, [played], of_stand_in),
        (NEVER, NOTHING, (verdicts.NEVER_RUN, "")),
        (NEVER, [MOVES], (verdicts.NEVER_RUN, "expected to fail: needs live migration")),
        (SKIPPED, NOTHING, (verdicts.SKIPS, "no <IPv6> here")),
        (SKIPPED, [verdicts.Verdict(re.compile("IPv6"), "cluster", "IPv6")], (verdicts.SKIPS, "no <IPv6> here")),
        (PENDING, NOTHING, (verdicts.SKIPS, verdicts.PENDING)),
    ):
        assert verdicts.judge(result, known) == expected
    moved = results.of(Spec(NEVER.text, NEVER.labels, "failed", 1, "no"), "abc", "2026-11-26")
    assert verdicts.judge(moved, [MOVES]) == (verdicts.FAILS, "needs live migration; not yet")


def test_a_verdict_has_one_of_the_kinds() -> None:
    assert [each.kind for each in verdicts.parse("# a\n\nVM\tnever\tno\nVM\tcluster\tswap\n")] == ["never", "cluster"]
    with pytest.raises(ValueError, match="does not apply"):
        verdicts.parse("VM\tdoes not apply\tit skips itself\n")


def test_what_fails_without_a_verdict_or_has_no_result_ends_a_campaign_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "load", lambda: [MOVES])
    moved = Result(NEVER.text, NEVER.labels, "failed")
    assert program.judged(Outcome([PASSED, moved, SKIPPED, PENDING])) == 0
    assert program.judged(Outcome([PASSED, FAILED])) == 1
    assert "failed, and no verdict says why: VM stops\n" in capsys.readouterr().out
    assert program.judged(Outcome([PASSED], lost=["VM sleeps"])) == 1
    assert program.judged(Outcome([Result(NEVER.text, NEVER.labels, "passed")])) == 0
    assert "a verdict says that it does not: VM moves\n" in capsys.readouterr().out
    monkeypatch.setattr(verdicts, "load", lambda: [verdicts.Verdict(re.compile("starts"), "stand-in", "no operator")])
    assert program.judged(Outcome([PASSED])) == 0
    assert "a verdict says" not in capsys.readouterr().out


def test_the_table_counts_each_group_and_lists_conformance() -> None:
    made = table.part([PASSED, FAILED, NEVER, SKIPPED, PENDING], [MOVES])
    assert "| label `conformance` | 1 | 0 | 0 | 0 | 1 | 2 |\n" in made
    assert "| sig-compute | 1 | 1 | 0 | 0 | 1 | 3 |\n" in made
    assert "| sig-network | 0 | 0 | 2 | 0 | 0 | 2 |\n" in made
    assert "| all | 1 | 1 | 2 | 0 | 1 | 5 |\n" in made
    assert "| VM [test_id:7]starts | passes, 2026-11-26 |  |\n" in made
    assert "VM stops" not in made


def test_the_whole_page_has_every_specification_once() -> None:
    moves = Result("VM moves twice", ("sig-compute", "sig-compute-migrations"), "failed", 9, "abc", "2026-11-26", "no")
    made = table.whole([PASSED, FAILED, NEVER, SKIPPED, PENDING, moves], [MOVES])
    assert "All 6 tests" in made and "1 were never run" in made
    assert [line for line in made.splitlines() if line.startswith("## ")] == [
        "## sig-compute-migrations",
        "## sig-compute",
        "## sig-network",
    ]
    assert "Never run: 1.\n\n- VM moves (expected to fail: needs live migration)\n" in made
    assert "| VM speaks IPv6 | left out by the suite, 2026-11-26 | no &lt;IPv6> here |\n" in made
    assert "| VM waits | left out by the suite | the suite marks it as pending and runs it nowhere |\n" in made
    assert all(made.count(f" {text} ") == 1 for text in ("VM stops", "VM moves twice", "VM speaks IPv6"))


def test_a_cell_stays_short_whatever_is_escaped_in_it() -> None:
    assert table.cell("a|b", 10) == "a\\|b"
    assert len(table.cell("<a|b*c](" * 40, 190)) <= 190
    assert table.escaped("[id:1](x)") == "[id:1]\\(x)"


def test_a_list_keeps_what_is_known_and_learns_what_is_pending() -> None:
    specs = [Spec("VM  stops", ("sig-compute",), "passed", 0, ""), Spec("VM waits", ("sig-network",), "pending", 0, "")]
    assert results.listed_with(specs, {FAILED.text: FAILED, NEVER.text: NEVER}) == {
        FAILED.text: FAILED,
        PENDING.text: PENDING,
    }
    assert not PENDING.has_failed
    no_more = [Spec(PENDING.text, PENDING.labels, "passed", 0, "")]
    assert results.listed_with(no_more, {PENDING.text: PENDING})[PENDING.text].state == ""


def test_one_process_is_the_suite_itself_and_several_are_started_by_ginkgo(tmp_path: pathlib.Path) -> None:
    compiled = tmp_path / "suite"
    compiled.touch()
    report, own = tmp_path / "run.json", ["-kubeconfig", "k"]
    assert Suite(compiled, tmp_path).command(["focus=a=b"], report, own) == [
        compiled,
        "--ginkgo.focus=a=b",
        f"--ginkgo.json-report={report}",
        *own,
    ]
    several = Suite(compiled, tmp_path, processes=3).command(["focus=a=b"], report, own)
    assert several == [
        tmp_path / "ginkgo",
        "run",
        "--focus=a=b",
        "--procs=3",
        f"--output-dir={tmp_path}",
        "--json-report=run.json",
        tmp_path / "suite.test",
        "--",
        *own,
    ]
    assert (tmp_path / "suite.test").resolve() == compiled


def reported(state: str, kind: str = "It", message: str = "") -> dict[str, object]:
    return {
        "LeafNodeType": kind,
        "LeafNodeText": "starts",
        "LeafNodeLabels": ["conformance"],
        "ContainerHierarchyTexts": ["VM"],
        "ContainerHierarchyLabels": [["sig-compute"]],
        "State": state,
        "RunTime": 2e9,
        **({"Failure": {"Message": message}} if message else {}),
    }


def test_a_report_is_read_and_one_that_came_to_nothing_is_an_error(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "run.json"
    report.write_text(json.dumps([{"SpecReports": [reported("failed", message="no")]}]))
    assert suite.read(report) == [Spec("VM starts", ("conformance", "sig-compute"), "failed", 2.0, "no")]
    early = [{"SpecReports": [reported("failed", "SynchronizedBeforeSuite", "no cluster")]}]
    for text, why in (("[]", "is empty"), (json.dumps(early), "no cluster")):
        report.write_text(text)
        with pytest.raises(Failure, match=why):
            suite.read(report)


def test_namespaces_of_every_process_are_the_suites() -> None:
    names = ["kubevirt-test-default1", "kubevirt-test-privileged12", "kubevirt-test-default", "kubevirt-test-other1"]
    assert [name for name in names if NAMESPACES.fullmatch(name)] == names[:2]


def test_the_name_server_is_where_kubelets_send_pods_and_called_as_the_suite_looks_for_it() -> None:
    layout = (REPOSITORY / "tests/cluster/src/layout.rs").read_text()
    host = re.search(r"HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new\(([\d, ]+)\)", layout)
    service, deployment = dns.service(), dns.deployment()
    assert host and service["spec"]["externalIPs"] == [host[1].replace(", ", ".")]
    # tests/flags/flags.go: dns-service-name, dns-service-namespace.
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == ("kube-dns", "kube-system")
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert {(port["port"], port["protocol"]) for port in service["spec"]["ports"]} == {(53, "UDP"), (53, "TCP")}


def test_the_name_server_has_each_plugin_that_its_corefile_names() -> None:
    imported = re.findall(r"/plugin/(\w+)\"", (REPOSITORY / "tests/reference/coredns/main.go").read_text())
    assert sorted(imported) == sorted(set(re.findall(r"(?m)^    (\w+)", dns.COREFILE)))


def test_a_cluster_that_is_emptied_has_no_name_server() -> None:
    option, label = emptying.OF_NAME_SERVER
    kinds = emptying.NAME_SERVER_KINDS.split(",")
    for each in dns.objects():
        assert f"{each['kind'].lower()}s" in kinds
        assert label in [f"{name}={value}" for name, value in each["metadata"]["labels"].items()]
    assert option == "-l"


def test_what_stands_for_virt_handler_has_its_label_and_goes_with_the_installation() -> None:
    template = handler.daemons()["spec"]["template"]
    assert template["metadata"]["labels"] == {"kubevirt.io": "virt-handler"}
    for each in (*handler.rights(), handler.daemons()):
        metadata, (option, label) = each["metadata"], emptying.OF_GARBOARD
        if metadata.get("namespace") != INSTALLED_IN:
            assert f"{each['kind'].lower()}s" in emptying.INSTALLED_KINDS
            assert (option, label) == ("-l", "=".join(*metadata["labels"].items()))


def test_the_world_outside_of_the_cluster_has_one_name() -> None:
    assert suite.OUTSIDE == ("-conn-check-ipv4-address", dns.ADDRESS, "-conn-check-dns", dns.OUTSIDE)
    assert re.search(rf'template IN A {dns.OUTSIDE} {{\s+answer "{{{{ .Name }}}} \d+ IN A {dns.ADDRESS}"', dns.COREFILE)


def test_the_pages_are_what_the_results_say() -> None:
    assert results.load(), f"there is no {results.FILE}"
    for page, text in table.pages().items():
        assert page.read_text() == text, f"{page}: run scripts/reference-table"


def test_every_specification_of_the_suite_has_a_line() -> None:
    """As many as `scripts/reference --list-all` prints of v1.7.0: texts that several have are one line."""
    assert len(results.load()) == 1412, "run scripts/reference --list-all, then scripts/reference-table"


def test_every_verdict_is_about_a_specification() -> None:
    subjects = [result.subject for result in results.load().values()]
    assert [each.pattern.pattern for each in verdicts.load() if not any(map(each.pattern.search, subjects))] == []


def test_the_quick_ones_are_of_the_suite_and_no_verdict_is_about_them() -> None:
    known, listed = verdicts.load(), results.load()
    quick = (REPOSITORY / "tests/reference/quick.txt").read_text().splitlines()
    assert len(quick) >= 12
    assert [text for text in quick if text not in listed or verdicts.about(listed[text], known)] == []
