//! vCPUs with host CPUs of their own, and what builds on them: NUMA pass-through, real time, a CPU for the emulator.

use super::report::{Report, invalid, required};
use super::subject::Subject;
use crate::arch::Arch;
use crate::quantity::Quantity;
use crate::v1::CPU;

/// The most threads of one core: what the host's cores have.
const THREADS_MAX: u64 = 2;

/// Judges what depends on dedicated CPUs.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(cpu) = &subject.spec.domain.cpu else { return };
    let dedicated = cpu.dedicated_cpu_placement == Some(true);
    if dedicated {
        whole_numbers(subject, report);
        one_size(subject, cpu, report);
        memory(subject, report);
        threads(subject, cpu, report);
    } else if cpu.isolate_emulator_thread == Some(true) {
        report.push(
            invalid(
                subject.path("domain.cpu.isolateEmulatorThread"),
                "the emulator can have a CPU of its own only where vCPUs have",
            )
            .instead("write `dedicatedCpuPlacement: true` too, or remove this"),
        );
    }
    let passes_numa = cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some());
    if passes_numa {
        numa(subject, dedicated, report);
    }
    if cpu.realtime.is_some() {
        realtime(subject, dedicated, passes_numa, report);
    }
}

/// The number of vCPUs a topology means: 0 if nothing of it is set.
pub(crate) fn vcpu_count(cpu: &CPU) -> u64 {
    let written = [cpu.sockets, cpu.cores, cpu.threads].map(|part| u64::from(part.unwrap_or(0)));
    if written.iter().all(|part| *part == 0) {
        return 0;
    }
    written.iter().filter(|part| **part != 0).product()
}

fn whole(quantity: Option<&Quantity>) -> i128 {
    quantity.map_or(0, |quantity| i128::from(quantity.value()))
}

fn whole_numbers(subject: &Subject<'_>, report: &mut Report) {
    for (list, given) in [("requests", subject.request("cpu")), ("limits", subject.limit("cpu"))] {
        if let Some(time) = given
            && time.is_positive()
            && !time.is_whole()
        {
            report.push(
                invalid(
                    subject.path("domain.resources").child(list).child("cpu"),
                    format!("`{time}` is a part of a CPU, and vCPUs with CPUs of their own take whole ones"),
                )
                .instead("write a whole number of CPUs"),
            );
        }
    }
}

fn one_size(subject: &Subject<'_>, cpu: &CPU, report: &mut Report) {
    let (request, limit) = (whole(subject.request("cpu")), whole(subject.limit("cpu")));
    let vcpus = i128::from(vcpu_count(cpu));
    let mut refuse = |message: String, instead: &str| {
        report.push(invalid(subject.path("domain.cpu.dedicatedCpuPlacement"), message).instead(instead));
    };
    if request == 0 && limit == 0 && vcpus == 0 {
        refuse("the number of CPUs is not set".to_owned(), "write `cpu.cores`, or `resources.limits.cpu`");
    }
    if request > 0 && limit > 0 && request != limit {
        refuse(
            format!("the request of {request} CPUs differs from the limit of {limit}"),
            "write the same number for both",
        );
    }
    if (request > 0 || limit > 0) && vcpus > 0 && request != vcpus && limit != vcpus {
        refuse(
            format!("the topology has {vcpus} vCPUs, and {} CPUs are asked for", request.max(limit)),
            "write one of the two, or the same number for both",
        );
    }
}

fn memory(subject: &Subject<'_>, report: &mut Report) {
    let (request, limit) = (whole(subject.request("memory")), whole(subject.limit("memory")));
    let guest = subject.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    if request == 0 && limit == 0 && guest.is_none() {
        report.push(
            invalid(subject.path("domain.resources.limits.memory"), "the size of the memory is not set")
                .instead("write `memory.guest`"),
        );
    }
    if request > 0 && limit > 0 && request != limit {
        report.push(
            invalid(
                subject.path("domain.resources.requests.memory"),
                "with CPUs of its own a guest needs a request that equals the limit",
            )
            .instead("write the same size for both"),
        );
    }
}

fn threads(subject: &Subject<'_>, cpu: &CPU, report: &mut Report) {
    let threads = u64::from(cpu.threads.unwrap_or(0));
    if threads > 1 && subject.arch() == Some(Arch::Arm64) {
        report.push(
            invalid(subject.path("domain.cpu.threads"), format!("an arm64 core has one thread, not {threads}"))
                .instead("write 1, and more `cores`")
                .field(subject.path("architecture").to_string()),
        );
    }
    if threads > THREADS_MAX {
        report.push(
            invalid(subject.path("domain.cpu.threads"), format!("{threads} threads do not fit the host's cores"))
                .instead(format!("write at most {THREADS_MAX}, and more `cores`"))
                .field(subject.path("domain.cpu.dedicatedCpuPlacement").to_string()),
        );
    }
}

fn numa(subject: &Subject<'_>, dedicated: bool, report: &mut Report) {
    let at = subject.path("domain.cpu.numa.guestMappingPassthrough");
    if !dedicated {
        report.push(
            invalid(at.clone(), "the host's NUMA cells show through only where vCPUs have CPUs of their own")
                .instead("write `dedicatedCpuPlacement: true` too"),
        );
    }
    if subject.spec.domain.memory.as_ref().is_none_or(|memory| memory.hugepages.is_none()) {
        report.push(
            invalid(at, "the host's NUMA cells show through only with hugepages")
                .instead("write `memory.hugepages.pageSize` too"),
        );
    }
}

fn realtime(subject: &Subject<'_>, dedicated: bool, passes_numa: bool, report: &mut Report) {
    if !dedicated {
        report.push(
            required(subject.path("domain.cpu.dedicatedCpuPlacement"), "real time needs CPUs of one's own")
                .instead("write `dedicatedCpuPlacement: true`, or remove `realtime`"),
        );
    }
    if !passes_numa {
        report.push(
            required(subject.path("domain.cpu.numa.guestMappingPassthrough"), "real time needs the host's NUMA cells")
                .instead("write `numa: {guestMappingPassthrough: {}}`, or remove `realtime`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const CPU: &str = "spec.domain.cpu";
    const RESOURCES: &str = "spec.domain.resources";
    const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";

    #[test]
    fn dedicated_cpus_come_in_whole_equal_numbers() {
        accepted(&[
            &[(CPU, json!({"cores": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true}))],
            &[
                (CPU, json!({"cores": 2, "dedicatedCpuPlacement": true})),
                (RESOURCES, json!({"limits": {"cpu": "2", "memory": "1Gi"}})),
            ],
        ]);
        refused(&[
            (&[(CPU, json!({"isolateEmulatorThread": true}))], "spec.domain.cpu.isolateEmulatorThread", "dedicated"),
            (&[(CPU, json!({"dedicatedCpuPlacement": true}))], DEDICATED, "number of CPUs is not set"),
            (
                &[
                    (CPU, json!({"dedicatedCpuPlacement": true})),
                    (RESOURCES, json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})),
                ],
                DEDICATED,
                "differs from the limit",
            ),
            (
                &[(CPU, json!({"dedicatedCpuPlacement": true})), (RESOURCES, json!({"limits": {"cpu": "1500m"}}))],
                "spec.domain.resources.limits.cpu",
                "part of a CPU",
            ),
            (
                &[
                    (CPU, json!({"cores": 4, "dedicatedCpuPlacement": true})),
                    (RESOURCES, json!({"limits": {"cpu": "2"}})),
                ],
                DEDICATED,
                "4 vCPUs",
            ),
            (
                &[
                    (CPU, json!({"cores": 1, "dedicatedCpuPlacement": true})),
                    (RESOURCES, json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}})),
                ],
                "spec.domain.resources.requests.memory",
                "equals the limit",
            ),
            (
                &[(CPU, json!({"cores": 1, "threads": 4, "dedicatedCpuPlacement": true}))],
                "spec.domain.cpu.threads",
                "at most 2",
            ),
        ]);
    }

    #[test]
    fn real_time_builds_on_dedicated_cpus_and_numa() {
        let fields: Vec<String> =
            faults(&[(CPU, json!({"cores": 2, "realtime": {}}))]).into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, [DEDICATED, "spec.domain.cpu.numa.guestMappingPassthrough"]);
        refused(&[(
            &[(CPU, json!({"cores": 2, "numa": {"guestMappingPassthrough": {}}}))],
            "spec.domain.cpu.numa.guestMappingPassthrough",
            "hugepages",
        )]);
    }
}
