//! Memory: the guest's, the pages it is made of, and what is asked of the host.

use super::report::{Report, invalid, required, unsupported};
use super::subject::{Subject, text};
use crate::cluster::{Gate, Rollout};
use crate::quantity::Quantity;
use crate::suggest::one_of;

/// The smallest request for memory, in bytes: less is a missing unit.
const REQUEST_MIN: i64 = 1_000_000;
const MEM_LOCK: &[&str] = &["Required", "NotRequired"];

/// Judges memory, the part that holds for templates too.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    request(subject, report);
    limit(subject, report);
    guest(subject, report);
    hugepages(subject, report);
    overhead(subject, report);
}

/// A guest without any memory cannot be started. KubeVirt reports this one without a field.
pub(crate) fn some_is_given(subject: &Subject<'_>, report: &mut Report) {
    if subject.request("memory").is_some_and(|request| !request.is_zero()) {
        return;
    }
    let memory = subject.spec.domain.memory.as_ref();
    if memory.is_none_or(|memory| memory.guest.is_none() && memory.hugepages.is_none()) {
        report.push(
            required(subject.path("domain.memory.guest"), "the size of the guest's memory is not set")
                .instead("write a size, such as `1Gi`")
                .field(""),
        );
    }
}

fn request(subject: &Subject<'_>, report: &mut Report) {
    let Some(request) = subject.request("memory") else { return };
    let at = subject.path("domain.resources.requests.memory");
    if request.is_negative() {
        report.push(invalid(at, format!("`{request}` is negative")).instead("write a size, such as `1Gi`"));
    } else if request.is_positive() && request.value() < REQUEST_MIN {
        report.push(
            invalid(at, format!("`{request}` is less than a megabyte"))
                .instead("write a size with its unit, such as `1Gi`"),
        );
    }
}

fn limit(subject: &Subject<'_>, report: &mut Report) {
    let Some(limit) = subject.limit("memory") else { return };
    if limit.is_negative() {
        report.push(
            invalid(subject.path("domain.resources.limits.memory"), format!("`{limit}` is negative"))
                .instead("write a size, such as `1Gi`"),
        );
    }
    if let Some(request) = subject.request("memory")
        && limit.is_positive()
        && request > limit
    {
        report.push(
            invalid(
                subject.path("domain.resources.requests.memory"),
                format!("the request `{request}` is greater than the limit `{limit}`"),
            )
            .instead("write a request that is at most the limit"),
        );
    }
}

fn guest(subject: &Subject<'_>, report: &mut Report) {
    let Some(memory) = &subject.spec.domain.memory else { return };
    let Some(guest) = &memory.guest else { return };
    let at = subject.path("domain.memory.guest");
    if !guest.is_positive() {
        report.push(
            invalid(at.clone(), format!("a guest cannot run in `{guest}` of memory"))
                .instead("write a size, such as `1Gi`"),
        );
    }
    if let Some(limit) = subject.limit("memory")
        && subject.config.rollout == Rollout::Stage
        && limit.is_positive()
        && limit < guest
    {
        report.push(
            invalid(at, format!("`{guest}` does not fit the limit `{limit}`"))
                .instead("write a size that is at most `resources.limits.memory`"),
        );
    }
    if let Some(most) = &memory.max_guest
        && most < guest
    {
        report.push(
            invalid(
                subject.path("domain.memory.maxGuest"),
                format!("the guest begins with `{guest}`, which is more than `{most}`"),
            )
            .instead("write a size that is at least `memory.guest`, or remove it")
            .field(subject.path("domain.memory.guest").to_string()),
        );
    }
}

fn hugepages(subject: &Subject<'_>, report: &mut Report) {
    let Some(memory) = &subject.spec.domain.memory else { return };
    let Some(hugepages) = &memory.hugepages else { return };
    let at = subject.path("domain.memory.hugepages.pageSize");
    let written = text(&hugepages.page_size);
    let page = match written.parse::<Quantity>() {
        Ok(page) if page.is_positive() => page.value(),
        _ => {
            report.push(
                invalid(at, format!("`{written}` is not the size of a page"))
                    .instead("write `2Mi` or `1Gi`")
                    .field(subject.path("domain.hugepages.size").to_string()),
            );
            return;
        }
    };
    let request = subject.request("memory").map_or(0, Quantity::value);
    let asked = if request == 0 { memory.guest.as_ref().map_or(0, Quantity::value) } else { request };
    let sent = subject.path("domain.resources.requests.memory").to_string();
    if asked != 0 && asked < page {
        report.push(
            invalid(at, format!("one page of `{written}` is more than all the memory of the guest"))
                .instead("write a smaller page, or more memory")
                .field(sent),
        );
    } else if asked % page != 0 {
        report.push(
            invalid(at, format!("the memory of the guest is not a whole number of pages of `{written}`"))
                .instead("write a size that is a multiple of the page, or another page size")
                .field(sent),
        );
    }
}

fn overhead(subject: &Subject<'_>, report: &mut Report) {
    let Some(reserved) = subject.spec.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref())
    else {
        return;
    };
    let at = subject.path("domain.memory.reservedOverhead");
    if !subject.config.has(Gate::ReservedOverheadMemlock) {
        report.push(
            unsupported(at.clone(), format!("this needs the feature gate {}", Gate::ReservedOverheadMemlock))
                .instead("switch the gate on, or remove it"),
        );
    }
    if reserved.added_overhead.as_ref().is_some_and(Quantity::is_negative) {
        report.push(invalid(at.child("addedOverhead"), "the size is negative").instead("write a size, such as `64Mi`"));
    }
    let lock = text(&reserved.mem_lock);
    if !lock.is_empty() && !MEM_LOCK.contains(&lock) {
        report.push(
            unsupported(at.child("memLock"), format!("there is no rule `{lock}`")).instead(one_of(lock, MEM_LOCK)),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate, Rollout};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    const MEMORY: &str = "spec.domain.memory";
    const RESOURCES: &str = "spec.domain.resources";

    #[test]
    fn sizes_that_make_sense() {
        accepted(&[
            &[(MEMORY, json!({"guest": "1.5Gi"}))],
            &[(MEMORY, json!({"guest": 536_870_912}))],
            &[(MEMORY, json!({"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}}))],
            &[(MEMORY, json!({"guest": "1Gi", "hugepages": {"pageSize": "1Gi"}}))],
            &[(RESOURCES, json!({"limits": {"memory": "256Mi"}}))],
        ]);
    }

    #[test]
    fn sizes_that_do_not() {
        refused(&[
            (&[(MEMORY, json!({"guest": "0"}))], "spec.domain.memory.guest", "cannot run"),
            (&[(MEMORY, json!({"guest": "512Mi", "maxGuest": "256Mi"}))], "spec.domain.memory.maxGuest", "more than"),
            (&[(MEMORY, json!(null))], "spec.domain.memory.guest", "memory is not set"),
            (
                &[(MEMORY, json!({"guest": "1Gi", "hugepages": {"pageSize": "3Mi"}}))],
                "spec.domain.memory.hugepages.pageSize",
                "whole number of pages",
            ),
            (
                &[(MEMORY, json!({"guest": "512Mi", "hugepages": {"pageSize": "1Gi"}}))],
                "spec.domain.memory.hugepages.pageSize",
                "more than all",
            ),
            (
                &[(MEMORY, json!({"guest": "1Gi", "hugepages": {"pageSize": "big"}}))],
                "spec.domain.memory.hugepages.pageSize",
                "`2Mi` or `1Gi`",
            ),
            (
                &[(RESOURCES, json!({"requests": {"memory": "512"}}))],
                "spec.domain.resources.requests.memory",
                "less than a megabyte",
            ),
            (
                &[(RESOURCES, json!({"requests": {"memory": "-1Gi"}}))],
                "spec.domain.resources.requests.memory",
                "negative",
            ),
            (&[(RESOURCES, json!({"limits": {"memory": "-1"}}))], "spec.domain.resources.limits.memory", "negative"),
            (
                &[(RESOURCES, json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}))],
                "spec.domain.resources.requests.memory",
                "greater than the limit",
            ),
            (
                &[(MEMORY, json!({"guest": "1Gi", "reservedOverhead": {"memLock": "required"}}))],
                "spec.domain.memory.reservedOverhead.memLock",
                "did you mean `Required`?",
            ),
        ]);
    }

    #[test]
    fn kubevirt_s_odd_spellings_are_kept() {
        assert_eq!(faults(&[(MEMORY, json!(null))])[0].field, "");
        assert_eq!(
            faults(&[(MEMORY, json!({"guest": "1Gi", "hugepages": {"pageSize": "x"}}))])[0].field,
            "spec.domain.hugepages.size"
        );
    }

    #[test]
    fn where_changes_wait_for_a_restart_the_guest_must_fit_its_limit() {
        let config = ClusterConfig { rollout: Rollout::Stage, ..ClusterConfig::offline() };
        let faults = faults_in(&[(RESOURCES, json!({"limits": {"memory": "256Mi"}}))], &config);
        assert_eq!(faults[0].field, "spec.domain.memory.guest");
    }

    #[test]
    fn reserved_overhead_needs_its_gate() {
        let changes = [(MEMORY, json!({"guest": "1Gi", "reservedOverhead": {"addedOverhead": "64Mi"}}))];
        assert_eq!(faults_in(&changes, &ClusterConfig::offline().without(Gate::ReservedOverheadMemlock)).len(), 1);
    }
}
