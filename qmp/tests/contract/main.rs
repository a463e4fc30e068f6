//! One suite, two backends: the fake monitor and a real QEMU. What passes on both keeps the fake honest; what only a
//! real QEMU can show is at the end.
//!
//! The QEMU is `qemu-system-x86_64` of the path, or what `GARBOARD_TEST_QEMU` names. It runs without KVM and, where the
//! test does not start it, without a guest ever executing an instruction (`-S`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "clippy exempts tests, but not their helper functions"
)]

mod agent;
mod backend;
mod real;
mod recording;
mod suite;

use backend::Backend;

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_fake {
            $(#[tokio::test] async fn $name() { super::suite::$name(super::Backend::fake().await).await; })*
        }
        mod on_qemu {
            $(#[tokio::test] async fn $name() {
                if let Some(backend) = super::Backend::qemu().await { super::suite::$name(backend).await; }
            })*
        }
    };
}

on_both!(
    greets_and_reports_its_state,
    refuses_what_it_does_not_support,
    resumes_and_pauses_with_events,
    resets_with_an_event,
    takes_descriptors_by_name,
    takes_descriptors_into_sets,
    serves_a_vnc_client_by_descriptor,
    unplugs_a_device_and_removes_it,
    waits_in_vain_for_a_guest_that_does_not_answer,
    follows_a_job_to_its_end,
    reports_why_a_job_failed,
    quits_with_a_reason,
    serves_one_supervisor_after_the_other,
    serves_broker_clients,
    lists_its_commands_and_schema,
);
