//! Devices a guest has at most a few of: inputs, sound, screen, watchdog, panic devices, I/O threads.

use super::report::{Report, invalid, required, unsupported};
use super::subject::{Subject, text};
use crate::arch::Arch;
use crate::cluster::Gate;
use crate::suggest::one_of;
use crate::v1::Devices;

const INPUT_BUSES: &[&str] = &["usb", "virtio"];
const SOUND_MODELS: &[&str] = &["ich9", "ac97"];
const PANIC_MODELS: &[&str] = &["pvpanic", "isa", "hyperv"];
const WATCHDOG_ACTIONS: &[&str] = &["poweroff", "reset", "shutdown"];
const IO_THREAD_POLICIES: &[&str] = &["shared", "auto", "supplementalPool"];
const REBOOT_POLICIES: &[&str] = &["Reboot", "Terminate"];

/// Judges the single devices of a guest.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let devices = &subject.spec.domain.devices;
    inputs(subject, devices, report);
    sound(subject, devices, report);
    screen(subject, devices, report);
    panic_devices(subject, devices, report);
    io_threads(subject, report);
    reboot(subject, report);
}

/// Judges what depends on the architecture, as an instance must fulfil it.
pub(crate) fn for_architecture(subject: &Subject<'_>, report: &mut Report) {
    let Some(arch) = subject.arch() else { return };
    let devices = &subject.spec.domain.devices;
    video_type(subject, devices, arch, report);
    watchdog(subject, devices, arch, report);
    if arch == Arch::Arm64 && devices.sound.is_some() {
        report.push(
            unsupported(subject.path("domain.devices.sound"), "an arm64 machine has no sound device")
                .instead("remove it"),
        );
    }
}

fn inputs(subject: &Subject<'_>, devices: &Devices, report: &mut Report) {
    let list = subject.path("domain.devices.inputs");
    for (index, input) in devices.inputs.iter().enumerate() {
        let at = list.index(index);
        let bus = text(&input.bus);
        if !bus.is_empty() && !INPUT_BUSES.contains(&bus) {
            report.push(
                unsupported(at.child("bus"), format!("an input device cannot sit on the bus `{bus}`"))
                    .instead(one_of(bus, INPUT_BUSES)),
            );
        }
        if input.r#type != "tablet" {
            report.push(
                unsupported(at.child("type"), format!("there is no input device `{}`", input.r#type))
                    .instead("write `tablet`; keyboard and mouse are always there"),
            );
        }
    }
}

fn sound(subject: &Subject<'_>, devices: &Devices, report: &mut Report) {
    let Some(sound) = &devices.sound else { return };
    let at = subject.path("domain.devices.sound");
    let sent = subject.at.child("Sound").to_string();
    let model = text(&sound.model);
    if !model.is_empty() && !SOUND_MODELS.contains(&model) {
        report.push(
            unsupported(at.child("model"), format!("there is no sound device `{model}`"))
                .instead(one_of(model, SOUND_MODELS))
                .field(sent.clone()),
        );
    }
    if sound.name.is_empty() {
        report.push(
            required(at.child("name"), "the sound device has no name")
                .instead("write one, such as `sound`")
                .field(sent),
        );
    }
}

fn screen(subject: &Subject<'_>, devices: &Devices, report: &mut Report) {
    if devices.video.is_some() && devices.autoattach_graphics_device == Some(false) {
        report.push(
            invalid(subject.path("domain.devices.video"), "a guest without a screen has no video device")
                .instead("remove `video`, or `autoattachGraphicsDevice: false`")
                .field(subject.at.child("video").to_string()),
        );
    }
}

fn video_type(subject: &Subject<'_>, devices: &Devices, arch: Arch, report: &mut Report) {
    let Some(video) = &devices.video else { return };
    let known: &[&str] = match arch {
        Arch::Amd64 => &["vga", "cirrus", "virtio", "ramfb", "bochs"],
        Arch::Arm64 => &["virtio", "ramfb"],
        Arch::S390x => &["virtio"],
    };
    let kind = text(&video.r#type);
    let at = subject.path("domain.devices.video.type");
    if kind.is_empty() {
        report.push(required(at, "the type of the video device is missing").instead(one_of(kind, known)));
    } else if !known.contains(&kind) {
        report
            .push(unsupported(at, format!("there is no video device `{kind}` on {arch}")).instead(one_of(kind, known)));
    }
}

fn watchdog(subject: &Subject<'_>, devices: &Devices, arch: Arch, report: &mut Report) {
    let Some(watchdog) = &devices.watchdog else { return };
    let at = subject.path("domain.devices.watchdog");
    let fits = match arch {
        Arch::Amd64 => watchdog.i6300esb.is_some() && watchdog.diag288.is_none(),
        Arch::S390x => watchdog.diag288.is_some() && watchdog.i6300esb.is_none(),
        Arch::Arm64 => false,
    };
    if !fits {
        let instead = match arch {
            Arch::Amd64 => "write `i6300esb: {action: reset}`",
            Arch::S390x => "write `diag288: {action: reset}`",
            Arch::Arm64 => "remove it",
        };
        report.push(unsupported(at.clone(), format!("{arch} has no such watchdog")).instead(instead));
    }
    let actions = [
        ("i6300esb", watchdog.i6300esb.as_ref().map(|device| text(&device.action))),
        ("diag288", watchdog.diag288.as_ref().map(|device| text(&device.action))),
    ];
    for (device, action) in actions {
        let Some(action) = action else { continue };
        if !action.is_empty() && !WATCHDOG_ACTIONS.contains(&action) {
            report.push(
                unsupported(at.child(device).child("action"), format!("a watchdog cannot `{action}`"))
                    .instead(one_of(action, WATCHDOG_ACTIONS)),
            );
        }
    }
}

fn panic_devices(subject: &Subject<'_>, devices: &Devices, report: &mut Report) {
    let list = subject.path("domain.devices.panicDevices");
    if subject.arch() == Some(Arch::S390x) && !devices.panic_devices.is_empty() {
        report.push(unsupported(list.clone(), "an s390x machine reports a panic by itself").instead("remove them"));
    }
    for (index, device) in devices.panic_devices.iter().enumerate() {
        if let Some(model) = &device.model
            && !PANIC_MODELS.contains(&model.as_str())
        {
            report.push(
                unsupported(list.index(index).child("model"), format!("there is no panic device `{model}`"))
                    .instead(one_of(model, PANIC_MODELS)),
            );
        }
    }
}

fn io_threads(subject: &Subject<'_>, report: &mut Report) {
    let domain = &subject.spec.domain;
    let Some(policy) = &domain.io_threads_policy else { return };
    if !IO_THREAD_POLICIES.contains(&policy.as_str()) {
        report.push(
            unsupported(subject.path("domain.ioThreadsPolicy"), format!("there is no policy `{policy}`"))
                .instead(one_of(policy, IO_THREAD_POLICIES)),
        );
    }
    let pool = domain.io_threads.as_ref().and_then(|threads| threads.supplemental_pool_thread_count).unwrap_or(0);
    if policy == "supplementalPool" && pool < 1 {
        report.push(
            required(
                subject.path("domain.ioThreads.supplementalPoolThreadCount"),
                "the pool's number of threads is not written",
            )
            .instead("write 1 or more")
            .field(subject.path("domain.ioThreads.count").to_string()),
        );
    }
}

fn reboot(subject: &Subject<'_>, report: &mut Report) {
    let Some(policy) = &subject.spec.domain.reboot_policy else { return };
    let at = subject.path("domain.rebootPolicy");
    if !subject.config.has(Gate::RebootPolicy) {
        report.push(
            unsupported(at.clone(), format!("this needs the feature gate {}", Gate::RebootPolicy))
                .instead("switch the gate on, or remove it"),
        );
    }
    if !REBOOT_POLICIES.contains(&policy.as_str()) {
        report.push(unsupported(at, format!("there is no policy `{policy}`")).instead(one_of(policy, REBOOT_POLICIES)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    #[test]
    fn devices_that_exist() {
        accepted(&[
            &[("spec.domain.devices.inputs", json!([{"name": "t", "type": "tablet", "bus": "virtio"}]))],
            &[("spec.domain.devices.sound", json!({"name": "s", "model": "ich9"}))],
            &[("spec.domain.devices.video", json!({"type": "bochs"}))],
            &[("spec.domain.devices.watchdog", json!({"name": "w", "i6300esb": {"action": "poweroff"}}))],
            &[("spec.domain.devices.panicDevices", json!([{"model": "pvpanic"}, {}]))],
            &[
                ("spec.domain.ioThreadsPolicy", json!("supplementalPool")),
                ("spec.domain.ioThreads", json!({"supplementalPoolThreadCount": 4})),
            ],
            &[("spec.domain.rebootPolicy", json!("Terminate"))],
        ]);
    }

    #[test]
    fn devices_that_do_not() {
        refused(&[
            (
                &[("spec.domain.devices.inputs", json!([{"name": "t", "type": "tablet", "bus": "ps2"}]))],
                "spec.domain.devices.inputs[0].bus",
                "`usb` or `virtio`",
            ),
            (
                &[("spec.domain.devices.inputs", json!([{"name": "k", "type": "keyboard"}]))],
                "spec.domain.devices.inputs[0].type",
                "write `tablet`",
            ),
            (
                &[("spec.domain.devices.sound", json!({"name": "s", "model": "ich8"}))],
                "spec.domain.devices.sound.model",
                "did you mean `ich9`?",
            ),
            (&[("spec.domain.devices.sound", json!({"name": ""}))], "spec.domain.devices.sound.name", "no name"),
            (&[("spec.domain.devices.video", json!({"type": "bogus"}))], "spec.domain.devices.video.type", "amd64"),
            (
                &[
                    ("spec.domain.devices.video", json!({"type": "vga"})),
                    ("spec.domain.devices.autoattachGraphicsDevice", json!(false)),
                ],
                "spec.domain.devices.video",
                "without a screen",
            ),
            (
                &[("spec.domain.devices.watchdog", json!({"name": "w", "i6300esb": {"action": "explode"}}))],
                "spec.domain.devices.watchdog.i6300esb.action",
                "`explode`",
            ),
            (
                &[("spec.domain.devices.watchdog", json!({"name": "w", "diag288": {}}))],
                "spec.domain.devices.watchdog",
                "i6300esb",
            ),
            (
                &[("spec.domain.devices.panicDevices", json!([{"model": "bogus"}]))],
                "spec.domain.devices.panicDevices[0].model",
                "`pvpanic`",
            ),
            (
                &[("spec.domain.ioThreadsPolicy", json!("share"))],
                "spec.domain.ioThreadsPolicy",
                "did you mean `shared`?",
            ),
            (
                &[("spec.domain.ioThreadsPolicy", json!("supplementalPool"))],
                "spec.domain.ioThreads.supplementalPoolThreadCount",
                "1 or more",
            ),
            (&[("spec.domain.rebootPolicy", json!("reboot"))], "spec.domain.rebootPolicy", "did you mean `Reboot`?"),
        ]);
    }

    #[test]
    fn kubevirt_s_odd_spellings_are_kept() {
        assert_eq!(faults(&[("spec.domain.devices.sound", json!({"name": ""}))])[0].field, "spec.Sound");
        assert_eq!(
            faults(&[("spec.domain.ioThreadsPolicy", json!("supplementalPool"))])[0].field,
            "spec.domain.ioThreads.count"
        );
        let config = ClusterConfig::offline().without(Gate::RebootPolicy);
        assert_eq!(
            faults_in(&[("spec.domain.rebootPolicy", json!("Reboot"))], &config)[0].field,
            "spec.domain.rebootPolicy"
        );
    }

    #[test]
    fn other_architectures_have_other_devices() {
        let arm = ("spec.architecture", json!("arm64"));
        refused(&[
            (
                &[arm.clone(), ("spec.domain.devices.watchdog", json!({"name": "w", "i6300esb": {}}))],
                "spec.domain.devices.watchdog",
                "remove it",
            ),
            (
                &[arm.clone(), ("spec.domain.devices.sound", json!({"name": "s"}))],
                "spec.domain.devices.sound",
                "no sound device",
            ),
            (
                &[arm.clone(), ("spec.domain.devices.disks[0].disk.bus", json!("sata"))],
                "spec.domain.devices.disks[0].disk.bus",
                "no such bus",
            ),
            (&[arm, ("spec.domain.cpu.model", json!("host-model"))], "spec.domain.cpu.model", "host-passthrough"),
            (
                &[("spec.architecture", json!("s390x")), ("spec.domain.devices.video", json!({"type": "vga"}))],
                "spec.domain.devices.video.type",
                "s390x",
            ),
        ]);
    }
}
