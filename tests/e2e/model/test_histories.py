"""The model of histories: good ones pass, and for each rule there are some that are refused."""

from collections.abc import Iterable

from garboard_e2e.cluster.history import Event, findings


def qemu(name: str, pod: str = "pod-a", machine: str = "ns/vm", writes: Iterable[str] = ()) -> Event:
    return {"id": name, "pod": pod, "machine": machine, "writes": list(writes)}


def processes(at: float, *running: Event) -> Event:
    return {"at": at, "kind": "processes", "running": list(running)}


def vm(at: float, strategy: str = "Always", machine: str = "ns/vm", **more: object) -> Event:
    return {
        "at": at,
        "kind": "object",
        "type": "vm",
        "uid": f"vm {machine}",
        "machine": machine,
        "gone": False,
        "strategy": strategy,
    } | more


def vmi(at: float, phase: str, uid: str = "a", machine: str = "ns/vm", gone: bool = False) -> Event:
    return {"at": at, "kind": "object", "type": "vmi", "uid": uid, "machine": machine, "gone": gone, "phase": phase}


def answered(at: float, *pods: str) -> Event:
    """The agent reports that nothing is left of these pods."""
    return vmi(at, "Running") | {"left": list(pods)}


def pod(at: float, uid: str = "pod-a", instance: str = "a") -> Event:
    return {"at": at, "kind": "object", "type": "pod", "uid": uid, "machine": "ns/vm", "gone": False, "vmi": instance}


def listed(at: float, kind: str, *uids: str) -> Event:
    return {"at": at, "kind": "listed", "type": kind, "uids": list(uids)}


def fault(at: float, over: bool = False, **more: object) -> Event:
    return {"at": at, "kind": "fault", "name": "storm", "over": over} | more


START = [
    vm(0),
    vmi(1, "Pending"),
    pod(1.1),
    vmi(1.2, "Scheduling"),
    vmi(2, "Scheduled"),
    processes(3, qemu("q1")),
    vmi(3.5, "Running"),
]
RESTART = [
    processes(10),
    vmi(11, "Failed"),
    vmi(11.5, "Failed", gone=True),
    vmi(12, "Pending", "b"),
    pod(12.1, "pod-b", "b"),
    processes(13, qemu("q2", "pod-b")),
    vmi(14, "Running", "b"),
]


def accepts(*history: Event) -> None:
    assert findings(list(history)) == []


def refuses(finding: str, *history: Event) -> None:
    found = findings(list(history))
    assert any(finding in finding for finding in found), found


def test_an_empty_history_is_accepted() -> None:
    accepts()


def test_a_start_and_a_restart_are_accepted() -> None:
    accepts(*START, *RESTART)


def test_order_in_the_list_does_not_matter() -> None:
    accepts(*reversed(START + RESTART))


def test_two_qemu_of_one_instance_are_refused() -> None:
    refuses("run the instance a: q1, q2", *START, processes(5, qemu("q1"), qemu("q2")), processes(6, qemu("q1")))


def test_two_pods_of_one_instance_are_refused() -> None:
    refuses(
        "run the instance a",
        *START,
        pod(4, "pod-c"),
        processes(5, qemu("q1"), qemu("q2", "pod-c")),
        processes(6, qemu("q1")),
    )


def test_two_instances_of_one_machine_at_once_are_refused_unless_an_operator_forced_it() -> None:
    overlap = [
        vmi(4, "Failed"),
        vmi(4.1, "Failed", gone=True),
        vmi(4.2, "Pending", "b"),
        pod(4.3, "pod-b", "b"),
        processes(5, qemu("q1"), qemu("q2", "pod-b")),
        vmi(5.1, "Running", "b"),
        processes(6, qemu("q2", "pod-b")),
    ]
    refuses("run the machine ns/vm: q1, q2", *START, *overlap)
    accepts(*START, fault(3.9, forced=["ns/vm"]), *overlap, fault(7, over=True))
    refuses("run the machine", *START, fault(3.9, forced=["ns/vm"]), fault(4, over=True), *overlap)
    refuses("run the machine", *START, fault(3.9, forced=["ns/other"]), *overlap)


def test_an_overlap_of_one_sample_is_seen() -> None:
    refuses("run the machine", *START, processes(5, qemu("q1"), qemu("q2", "pod-b")), processes(5.1, qemu("q1")))


def test_two_machines_may_run() -> None:
    accepts(
        *START,
        vm(1, "Manual", "ns/other"),
        vmi(2, "Running", "o", "ns/other"),
        pod(2, "pod-o", "o"),
        processes(3.1, qemu("q1"), qemu("q9", "pod-o", "ns/other")),
    )


def test_two_writers_of_one_disk_are_refused_whatever_is_broken() -> None:
    both = processes(5, qemu("q1", writes=["8:1:77"]), qemu("q2", "pod-o", "ns/other", ["8:1:77"]))
    refuses("write the disk 8:1:77: q1, q2", *START, both, processes(6, qemu("q1")))
    refuses("write the disk", *START, fault(4, forced=["ns/vm", "ns/other"], mutes=True), both)


def test_phases_that_go_back_are_refused() -> None:
    refuses("from Running back to Scheduled", *START, vmi(4, "Scheduled"), vmi(5, "Running"))
    refuses("from Failed back to Succeeded", *START, processes(5), vmi(5, "Failed"), vmi(6, "Succeeded"))
    refuses("back to no phase", *START, vmi(4, ""), vmi(5, "Running"))
    refuses("unknown phase 'Odd'", *START, vmi(4, "Odd"), vmi(5, "Running"))


def test_a_phase_may_be_skipped() -> None:
    accepts(vm(0, "Manual"), vmi(1, "Pending"), vmi(2, "Failed"))


def test_running_long_after_the_end_is_refused() -> None:
    refuses("called Running for 20.0 s", *START, processes(10), vmi(30, "Failed"))
    refuses("called Running for 90.0 s", *START, processes(10), processes(100))


def test_running_without_any_qemu_is_refused() -> None:
    refuses("without a QEMU", vm(0), pod(0), vmi(1, "Running"), processes(30, qemu("q1")))


def test_a_status_is_late_while_no_report_arrives() -> None:
    accepts(
        *START,
        fault(10, mutes=True),
        processes(11),
        fault(60, over=True),
        vmi(65, "Failed"),
        *[event | {"at": event["at"] + 60} for event in RESTART[2:]],
    )
    refuses("called Running", *START, fault(10), processes(11), fault(60, over=True), vmi(65, "Failed"))
    refuses(
        "called Running for 14.0 s",
        *START,
        fault(10, mutes=True),
        processes(11),
        fault(60, over=True),
        vmi(74, "Failed"),
    )


def test_a_fault_of_one_machine_mutes_no_other() -> None:
    after = [processes(11), fault(60, over=True), vmi(65, "Failed")]
    after += [event | {"at": event["at"] + 60} for event in RESTART[2:]]
    accepts(*START, fault(10, mutes=True, of=["ns/other", "ns/vm"]), *after)
    refuses("called Running", *START, fault(10, mutes=True, of=["ns/other"]), *after)


def test_an_instance_that_a_list_misses_claims_nothing() -> None:
    later = [event | {"at": event["at"] + 30} for event in RESTART[3:]]
    accepts(*START, processes(10), listed(15, "vmi"), *later)


def test_a_machine_that_is_always_to_run_runs_in_the_end() -> None:
    refuses("should run at the end", *START, *RESTART[:3])
    refuses("should run at the end", *START, *RESTART[:-1])
    refuses("should run at the end", *START, processes(5))
    accepts(vm(0, "Halted"))
    accepts(*START, vm(4, leaving=True), *RESTART[:3])


def test_a_qemu_that_no_status_knows_is_refused() -> None:
    refuses("no status has it", vm(0, "Halted"), processes(1, qemu("q1")))
    refuses("no status has it", *START, *RESTART, processes(20, qemu("q2", "pod-b"), qemu("q7", "pod-x", "ns/x")))


def test_a_pod_of_which_nothing_is_left_runs_no_qemu() -> None:
    accepts(*START, processes(10), answered(10.2, "pod-a"), *RESTART[1:])
    refuses("nothing is left of its pod, as reported", *START, answered(5, "pod-a"), processes(6, qemu("q1")))
    refuses(
        "nothing is left of its pod, as reported",
        *START,
        processes(10),
        answered(10.2, "pod-a"),
        processes(20, qemu("q3")),
    )
    accepts(*START, answered(5, "pod-b"), processes(6, qemu("q1")))


def test_a_lost_machine_is_refused() -> None:
    gone = vm(20, gone=True)
    end = [processes(21), vmi(21, "Failed", "b"), vmi(21.1, "Failed", "b", gone=True)]
    refuses("was not deleted", *START, *RESTART, gone, *end)
    refuses("was not deleted", *START, *RESTART, listed(20, "vm"), *end)
    accepts(*START, *RESTART, {"at": 19, "kind": "removal", "machine": "ns/vm"}, gone, *end)
