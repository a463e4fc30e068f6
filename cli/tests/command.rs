//! The command as people run it: at the end of a pipe (`garboard … | head` closes it, and that is no failure), on any host.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::fs::{File, OpenOptions};
use std::process::{Command, Output, Stdio};

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/vm-hello.yaml");

/// Runs the command with these ends for its output; standard error is returned if `err` is a pipe.
fn garboard(arguments: &[&str], out: Stdio, err: Stdio) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_garboard"));
    for variable in ["GARBOARD_RUNTIME_DIR", "GARBOARD_STATE_DIR", "GARBOARD_CACHE_DIR"] {
        command.env(variable, directory.path());
    }
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err).output().unwrap()
}

/// The writing end of a pipe that nothing reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_closed_pipe_is_no_panic_and_changes_no_verdict() {
    let table: [(&[&str], i32); 7] = [
        (&["explain", "--reference", MANIFEST], 0),
        (&["validate", MANIFEST], 0),
        (&["validate", "-o", "json", "/dev/null"], 2),
        (&["ps", "-o", "json"], 0),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
        (&["cluster", "install", "--print"], 0),
    ];
    for (arguments, code) in table {
        let ended = garboard(arguments, closed(), Stdio::piped());
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("pipe"), "{arguments:?}: {stderr}");
        // With `2>&1 | head` standard error is closed, too.
        assert_eq!(garboard(arguments, closed(), closed()).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error_message() {
    let ended = garboard(&["completions", "bash"], full().into(), Stdio::piped());
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("garboard: could not write to standard output: "), "{stderr}");
}

#[test]
fn a_machine_has_the_size_that_another_document_of_its_file_gives_it() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/vm-instancetype.yaml");
    let ended = garboard(&["explain", "--reference", example], Stdio::piped(), Stdio::piped());
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("cores=2"), "{stdout}");
    let mut text = std::fs::read_to_string(example).unwrap();
    text.truncate(text.rfind("\n---\n").unwrap());
    let alone = std::fs::read_to_string(example).unwrap()[text.len()..].to_owned();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), alone).unwrap();
    let ended = garboard(&["explain", "--reference", file.path().to_str().unwrap()], Stdio::piped(), Stdio::piped());
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && stderr.contains("add its manifest"), "{stderr}");
}

#[test]
fn explain_says_first_which_host_it_is_for() {
    let first_line = |arguments: &[&str]| {
        let ended = garboard(arguments, Stdio::piped(), Stdio::piped());
        String::from_utf8(ended.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    let plain = "# Planned for a plain Debian 12 host with KVM, not for this one";
    assert_eq!(first_line(&["explain", "--reference", MANIFEST]), plain);
    let here = first_line(&["explain", MANIFEST]);
    // A host without QEMU is reported as well.
    assert!(here == "# Planned for this host" || here.starts_with(&format!("{plain}, because ")), "{here}");
}

#[test]
fn explain_prints_a_domain_and_names_the_host_beside_it() {
    let ended =
        garboard(&["explain", "--reference", "--format", "domain-xml", MANIFEST], Stdio::piped(), Stdio::piped());
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert!(stdout.starts_with("<domain type=\"kvm\">") && stdout.ends_with("</domain>\n"), "{stdout}");
    assert!(stderr.contains("planned for a plain Debian 12 host"), "{stderr}");
    let both = garboard(&["explain", "--format", "domain-xml", "--shell", MANIFEST], Stdio::piped(), Stdio::piped());
    assert_eq!(both.status.code(), Some(2), "two forms at once");
}

/// Facts that `why -o facts` wrote on a cluster, changed a little where a test wants another situation.
fn facts(name: &str, change: impl FnOnce(&mut serde_json::Value)) -> tempfile::NamedTempFile {
    let path = format!("{}/../tests/situations/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let mut facts = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut facts);
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(file.as_file(), &facts).unwrap();
    file
}

#[test]
fn scripts_learn_from_the_exit_code_how_a_machine_is() {
    let as_is = |_: &mut serde_json::Value| {};
    let starting = |facts: &mut serde_json::Value| {
        facts["vmi"]["status"]["phase"] = "Scheduled".into();
        facts["vmi"]["status"]["conditions"] = serde_json::json!([]);
    };
    let gone = |facts: &mut serde_json::Value| {
        for kind in ["vm", "vmi"] {
            facts[kind] = serde_json::Value::Null;
        }
        for list in ["pods", "events", "claims"] {
            facts[list] = serde_json::json!([]);
        }
    };
    let table = [
        ("running", facts("running", as_is), 0, 0),
        ("meant to be off", facts("halted", as_is), 0, 0),
        ("on its way", facts("running", starting), 0, 7),
        ("in trouble", facts("noRoom", as_is), 0, 6),
        ("not there", facts("running", gone), 3, 3),
    ];
    for (name, file, plain, judged) in table {
        let why = ["kubectl", "why", "--facts", file.path().to_str().unwrap()];
        for (more, code) in [(&[][..], plain), (&["--exit-code"], judged), (&["--exit-code", "-o", "json"], judged)] {
            let ended = garboard(&[&why, more].concat(), Stdio::piped(), Stdio::piped());
            let stdout = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert_eq!(ended.status.code(), Some(code), "{name} {more:?}: {stdout}");
        }
    }
    let here = garboard(&["why", "--exit-code", "hello"], Stdio::piped(), Stdio::piped());
    assert_eq!(here.status.code(), Some(3), "on this host");
}
