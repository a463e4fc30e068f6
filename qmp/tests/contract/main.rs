//! One suite, two backends: the fake monitor and a real QEMU. What passes on both keeps the fake honest; what only a
//! real QEMU can show is at the end.
//!
//! The QEMUs are `qemu-system-x86_64` of the path, or what `GARBOARD_TEST_QEMU` names, and that of the images, if
//! `scripts/fetch-qemu10` was run. They run without KVM and, where the
//! test does not start it, without a guest ever executing an instruction (`-S`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "clippy exempts tests, but not their helper functions"
)]

mod agent;
mod backend;
#[path = "../../../tests/qemu_of_images.rs"]
mod qemu_of_images;
mod real;
mod recording;
mod suite;

use backend::{Backend, Which};

macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_fake {
            $(#[tokio::test] async fn $name() { super::suite::$name(super::Backend::fake().await).await; })*
        }
        mod on_qemu {
            $(#[tokio::test] async fn $name() {
                let backend = super::Backend::qemu(super::Which::Installed).await;
                if let Some(backend) = backend { super::suite::$name(backend).await; }
            })*
        }
        mod on_qemu_of_images {
            $(#[tokio::test] async fn $name() {
                let backend = super::Backend::qemu(super::Which::OfImages).await;
                if let Some(backend) = backend { super::suite::$name(backend).await; }
            })*
        }
    };
}

on_both!(
    greets_and_reports_its_state,
    refuses_what_it_does_not_support,
    resumes_and_pauses_with_events,
    resets_with_an_event,
    takes_an_action_for_a_guest_that_is_off,
    sets_the_link_of_what_it_has,
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

macro_rules! on_each_qemu {
    ($($name:ident),* $(,)?) => {
        mod real_installed {
            $(#[tokio::test] async fn $name() { super::real::$name(super::Which::Installed).await; })*
        }
        mod real_of_images {
            $(#[tokio::test] async fn $name() { super::real::$name(super::Which::OfImages).await; })*
        }
    };
}

on_each_qemu!(
    every_command_of_this_qemu_is_classed,
    what_reaches_files_and_sockets_by_name_is_dangerous,
    a_picture_of_the_screen_is_written_where_the_broker_names,
    a_client_that_may_write_takes_a_medium_out_and_puts_it_back,
    a_screenshot_is_a_png_in_memory,
    a_qemu_that_hangs_for_a_while_costs_one_call_and_no_connection,
    a_terminated_qemu_reports_it_and_a_killed_one_does_not,
    typed_replies_decode,
    the_schema_answers_what_a_planner_asks,
    a_broken_command_of_another_writer_fails_no_call_of_ours,
);
