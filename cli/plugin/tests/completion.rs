//! The program as kubectl calls it for completion, with a kubectl whose answers were recorded.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Answers as kubectl 1.35 does, and writes down how it was called.
const KUBECTL: &str = r#"#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
    *virtualmachines*) echo '{"kind": "List", "items": [{"metadata": {"name": "hello"}}, {"metadata": {"name": "help"}},
        {"metadata": {"name": "hello"}}, {"metadata": {"name": "web"}}]}' ;;
    *namespaces*) echo '{"kind": "List", "items": [{"metadata": {"name": "tenant"}}, {"metadata": {"name": "test"}}]}' ;;
    *'config view'*) echo '{"kind": "Config", "contexts": [{"name": "lab", "context": {}}], "clusters": null}' ;;
    *) echo 'Error from server (Forbidden): no' >&2; exit 1 ;;
esac
"#;

/// What is printed for these arguments, and how kubectl was called.
fn complete(directory: &Path, arguments: &[&str]) -> (String, String) {
    let program = directory.join("kubectl_complete-garboard");
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_kubectl-garboard"), &program).unwrap();
        std::fs::write(directory.join("kubectl"), KUBECTL).unwrap();
        std::fs::set_permissions(directory.join("kubectl"), Permissions::from_mode(0o755)).unwrap();
    }
    let calls = directory.join("calls");
    std::fs::write(&calls, "").unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("GARBOARD_KUBECTL", directory.join("kubectl")).env("CALLS", &calls);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    (String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(calls).unwrap())
}

#[test]
fn names_come_from_the_cluster_and_the_directive_is_last() {
    let directory = tempfile::tempdir().unwrap();
    let table: [(&[&str], &str, &str); 6] = [
        (&["console", "he"], "hello\nhelp\n:4\n", "get virtualmachines"),
        (&["-n", "tenant", "start", "hello", ""], "help\nweb\n:4\n", "--namespace=tenant get virtualmachines"),
        (&["console", "-n", "te"], "tenant\ntest\n:4\n", "get namespaces"),
        (&["why", "--context="], "lab\n:4\n", "config view"),
        (&["--cluster", ""], ":4\n", "config view"),
        (&["explain", "-f", ""], ":0\n", ""),
    ];
    for (arguments, expected, call) in table {
        let (printed, called) = complete(directory.path(), arguments);
        assert_eq!(printed, expected, "{arguments:?}");
        assert!(called.contains(call), "{arguments:?}: {called}");
        assert_eq!(called.is_empty(), call.is_empty(), "{arguments:?}: {called}");
    }
}

#[test]
fn the_chosen_context_is_asked_and_no_request_takes_long() {
    let directory = tempfile::tempdir().unwrap();
    let (_, called) = complete(directory.path(), &["--context=lab", "console", ""]);
    assert!(called.contains("--context=lab") && called.contains("--request-timeout=3s"), "{called}");
}

#[test]
fn a_cluster_that_cannot_be_asked_has_no_candidates() {
    let directory = tempfile::tempdir().unwrap();
    complete(directory.path(), &[""]);
    std::fs::write(directory.path().join("kubectl"), "#!/bin/sh\nexit 1\n").unwrap();
    assert_eq!(complete(directory.path(), &["console", ""]).0, ":4\n");
}

#[test]
fn commands_are_distinguished_by_what_they_do() {
    let directory = tempfile::tempdir().unwrap();
    let (printed, called) = complete(directory.path(), &["res"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("restart\t") && lines[1].starts_with("reset\t"), "{printed}");
    assert_eq!((lines.len(), lines[2], called.as_str()), (3, ":4", ""));
}
