//! Against the QEMUs of this machine: the installed one, and version 10 if `scripts/fetch-qemu10` was run.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use garboard_machine::facts::HostFacts;
use garboard_machine::features::{Feature, MachineType, QemuFeatures};

use super::*;
use crate::root::HostRoot;

#[path = "../../../tests/qemu_of_images.rs"]
mod qemu_of_images;

fn qemu10() -> PathBuf {
    qemu_of_images::directory().join("usr/bin/qemu-system-x86_64")
}

fn binary(path: &Path) -> Option<QemuBinary> {
    let found = QemuBinary::locate(&HostRoot::real(), Some(path), None).ok();
    if found.is_none() {
        eprintln!("skipped: {} is not there (scripts/fetch-qemu10 gets version 10)", path.display());
    }
    found
}

fn boot() -> BootId {
    BootId::read(&HostRoot::real())
}

fn anew(binary: &QemuBinary) -> QemuReport {
    examine(binary, &ProbeCache::none(), &boot(), ProbeKvm::No, Freshness::Fresh).unwrap()
}

#[test]
fn qemu_7_2_answers_what_it_can_do() {
    let Some(binary) = binary(Path::new("/usr/bin/qemu-system-x86_64")) else { return };
    let report = anew(&binary);
    let features = &report.facts.features;
    if (features.version.major, features.version.minor) != (7, 2) {
        eprintln!("skipped: the installed QEMU is {}", features.version);
        return;
    }
    assert_eq!(features.accelerators, [Accelerator::Kvm, Accelerator::Tcg].into());
    let q35 = features.machine("q35").unwrap();
    assert_eq!((q35.name.as_str(), q35.max_vcpus, q35.deprecated), ("pc-q35-7.2", 288, false));
    for device in ["virtio-blk-pci", "virtio-net-pci", "e1000e", "pvpanic", "i6300esb", "virtio-vga"] {
        assert!(features.has_device(device), "{device}");
    }
    assert!(features.objects.contains("memory-backend-memfd"));
    assert!(features.netdevs.contains("tap") && features.netdevs.contains("stream"), "{:?}", features.netdevs);
    assert!(features.cpu_models.contains("EPYC") && features.cpu_models.contains("max"));
    let options = [Feature::NetdevJson, Feature::JsonCliHotplug, Feature::Sandbox];
    assert_eq!(features.options, options.into());
    let tcg = &report.cpu_features[&Accelerator::Tcg];
    assert!(tcg.contains("sse2") && !tcg.contains("avx512f"), "{tcg:?}");
    assert_eq!(report.facts.module_dir, None);
}

#[test]
fn qemu_10_from_a_tree_of_its_own_answers_more() {
    let Some(binary) = binary(&qemu10()) else { return };
    let report = anew(&binary);
    let features = &report.facts.features;
    let name = format!("qemu-{}.{}", features.version.major, features.version.minor);
    assert!(
        qemu_of_images::directory().ends_with(name),
        "scripts/lib.sh has another version than {}",
        features.version
    );
    assert!(features.accelerators.contains(&Accelerator::Tcg), "TCG is compiled in: {:?}", features.accelerators);
    assert!(features.machine("pc-q35-10.0").is_some() && features.machine("pc-q35-7.2").is_some());
    let options = [Feature::NetdevJson, Feature::JsonCliHotplug, Feature::IothreadVqMapping, Feature::Sandbox];
    assert_eq!(features.options, options.into());
    let modules = report.facts.module_dir.as_deref().unwrap();
    assert!(modules.ends_with("usr/lib/x86_64-linux-gnu/qemu"), "{modules}");
    assert!(!report.facts.firmware_dirs.is_empty());
    // Modules of that tree were loaded, not those of the installed QEMU.
    assert!(features.has_device("virtio-gpu-pci"));
    assert!(!features.has_device("qxl"));
    expect_reference(&report);
}

/// What is planned before there is a pod must be what its QEMU can do.
fn expect_reference(report: &QemuReport) {
    let (real, reference) = (&report.facts.features, HostFacts::launcher_image());
    let features = &reference.qemu.features;
    let devices: BTreeSet<_> = real.devices.iter().filter(|name| !name.ends_with("-cpu")).cloned().collect();
    let anew = "write machine/src/reference/images.rs anew";
    assert_eq!((features.version.major, features.version.minor), (real.version.major, real.version.minor), "{anew}");
    assert_eq!(q35(features), q35(real), "{anew}");
    assert_eq!(features.devices, devices, "{anew}");
    assert_eq!(features.objects, real.objects, "{anew}");
    assert_eq!(features.netdevs, real.netdevs, "{anew}");
    assert_eq!(features.cpu_models, real.cpu_models, "{anew}");
    assert_eq!(features.options, real.options, "{anew}");
    assert_eq!(reference.cpu.features[&Accelerator::Tcg], report.cpu_features[&Accelerator::Tcg], "{anew}");
}

fn q35(features: &QemuFeatures) -> BTreeMap<&str, &MachineType> {
    let q35 = features.machines.iter().filter(|machine| machine.name.starts_with("pc-q35-"));
    q35.map(|machine| (machine.name.as_str(), machine)).collect()
}

#[test]
fn kvm_is_asked_for_its_own_cpu_features() {
    let Some(binary) = binary(Path::new("/usr/bin/qemu-system-x86_64")) else { return };
    if kvm_ioctls::Kvm::new().is_err() {
        eprintln!("skipped: /dev/kvm is not there or may not be opened");
        return;
    }
    let report = examine(&binary, &ProbeCache::none(), &boot(), ProbeKvm::Yes, Freshness::Fresh).unwrap();
    assert_eq!(report.kvm_refusal, None);
    let kvm = &report.cpu_features[&Accelerator::Kvm];
    assert!(kvm.contains("lm") && kvm != &report.cpu_features[&Accelerator::Tcg], "{kvm:?}");
}

#[test]
fn stored_answers_are_the_same_and_start_no_qemu() {
    let qemu = Path::new("/usr/bin/qemu-system-x86_64");
    if binary(qemu).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let begun = directory.path().join("begun");
    let (_place, binary) = impostor(&format!("echo once >>{}\nexec {} \"$@\"", begun.display(), qemu.display()));
    let starts = || std::fs::read_to_string(&begun).unwrap_or_default().lines().count();
    // Another test may have forked while the script was open for writing; its child closes it at once.
    while std::process::Command::new(&binary.path).arg("--version").output().is_err() {}
    let cache = ProbeCache::at(directory.path().join("probe"));
    let asked = examine(&binary, &cache, &boot(), ProbeKvm::No, Freshness::Stored).unwrap();
    let asking = starts();
    assert!(asking > 1, "QEMU was asked");
    assert_eq!(examine(&binary, &cache, &boot(), ProbeKvm::No, Freshness::Stored).unwrap(), asked);
    assert_eq!(starts(), asking, "QEMU was asked again");
    // A torn file is treated as missing.
    for entry in std::fs::read_dir(directory.path().join("probe")).unwrap() {
        std::fs::write(entry.unwrap().path(), "{").unwrap();
    }
    assert_eq!(examine(&binary, &cache, &boot(), ProbeKvm::No, Freshness::Stored).unwrap(), asked);
    assert!(starts() > asking, "the torn file was believed");
}

/// A program in place of QEMU.
fn impostor(script: &str) -> (tempfile::TempDir, QemuBinary) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qemu");
    let mut file = std::fs::File::create(&path).unwrap();
    writeln!(file, "#!/bin/sh\n{script}").unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
    drop(file);
    let binary = QemuBinary::locate(&HostRoot::real(), Some(&path), None).unwrap();
    (directory, binary)
}

/// How asking the impostor fails, within `limit`.
fn failure_within(limit: Duration, script: &str) -> SessionError {
    let (_directory, binary) = impostor(script);
    loop {
        match session::Session::start(&binary, &["tcg"], limit) {
            // Another test forked while the script was open for writing; its child closes it at once.
            Err(SessionError::Start { source, .. }) if source.raw_os_error() == Some(nix::libc::ETXTBSY) => {}
            Err(error) => return error,
            Ok(_) => panic!("the impostor was believed"),
        }
    }
}

/// The same for one that fails by itself, however busy the machine is.
fn failure(script: &str) -> SessionError {
    failure_within(Duration::from_secs(60), script)
}

#[test]
fn a_program_that_ends_is_quoted() {
    let error = failure("echo 'could not load PC BIOS' >&2; exit 1");
    let SessionError::Ended { command: "qmp_capabilities", last_output } = &error else { panic!("{error:?}") };
    assert_eq!(last_output, "could not load PC BIOS");
}

#[test]
fn a_program_that_writes_without_end_to_standard_error_is_bounded() {
    let error = failure("i=0; while [ $i -lt 30000 ]; do echo 'the same error once again' >&2; i=$((i+1)); done");
    let SessionError::Ended { last_output, .. } = &error else { panic!("{error:?}") };
    assert!(last_output.len() <= 4096 && last_output.contains("the same error"), "{last_output}");
}

#[test]
fn garbage_is_passed_over_and_a_refusal_is_quoted() {
    let error = failure(
        "echo garbage; echo '{\"QMP\": {}}'; read line; \
         echo '{\"id\": 1, \"error\": {\"class\": \"GenericError\", \"desc\": \"not today\"}}'; read line",
    );
    assert!(matches!(&error, SessionError::Refused { desc, .. } if desc == "not today"), "{error:?}");
}

#[test]
fn a_silent_program_is_given_up_and_ended_with_its_children() {
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let script = format!("exec 2>&-; sleep 1000 & echo $! > {}; wait", pid_file.display());
    // On a busy machine its time may be over before it has a child.
    let mut limit = Duration::from_millis(500);
    let child = loop {
        let begin = Instant::now();
        let error = failure_within(limit, &script);
        assert!(matches!(error, SessionError::TimedOut { .. }), "{error:?}");
        assert!(begin.elapsed() >= limit, "{:?}", begin.elapsed());
        match std::fs::read_to_string(&pid_file) {
            Ok(child) if child.ends_with('\n') => break child,
            other => assert!(limit < Duration::from_secs(30), "it never had a child: {other:?}"),
        }
        limit *= 2;
    };
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    let is_alive =
        |state: &str| state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'));
    // A killed process is gone once it was given a processor to die on.
    let end = Instant::now() + Duration::from_secs(60);
    while is_alive(&state()) {
        assert!(Instant::now() < end, "its child is still there: {}", state());
        std::thread::yield_now();
    }
}
