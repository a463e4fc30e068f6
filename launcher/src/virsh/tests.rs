//! Command lines, and machines of a directory without a supervisor.

use super::arguments::parse;
use super::*;

fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn refused(line: &str) -> String {
    parse(&split(line)).unwrap_err().to_string()
}

#[test]
fn command_lines_are_libvirts() {
    let domain = || "default_hello".to_owned();
    let table = [
        ("", Command::Help),
        ("-r list --all --name", Command::List { states: Which::All, listed: Listed::Name }),
        ("-c qemu:///system list", Command::List { states: Which::Active, listed: Listed::Table }),
        ("dumpxml default_hello --inactive", Command::DumpXml { domain: domain(), inactive: true }),
        ("domstate --domain default_hello --reason", Command::State { domain: domain(), reason: true }),
        ("domblklist default_hello --details", Command::Disks { domain: domain(), details: true }),
        ("domiflist default_hello", Command::Interfaces { domain: domain() }),
        ("domiflist --domain=default_hello", Command::Interfaces { domain: domain() }),
        (
            "qemu-monitor-command default_hello --pretty {\"execute\":\"query-status\"}",
            Command::Monitor { domain: domain(), pretty: true, command: "{\"execute\":\"query-status\"}".to_owned() },
        ),
    ];
    for (line, command) in table {
        assert_eq!(parse(&split(line)).unwrap(), command, "{line}");
    }
}

#[test]
fn a_refusal_is_libvirts_or_names_what_to_use() {
    let table = [
        ("frob", "unknown command: 'frob'"),
        ("domstate", "command 'domstate' requires <domain> option"),
        ("list --title", "command 'list' doesn't support option --title"),
        ("list --domain=x", "command 'list' doesn't support option --domain"),
        ("domstate a --cmd", "command 'domstate' doesn't support option --cmd"),
        ("-q list", "unsupported option '-q'. See --help."),
        ("list x", "unexpected data 'x'"),
        ("domiflist a b", "unexpected data 'b'"),
        ("qemu-monitor-command a", "command 'qemu-monitor-command' requires <cmd> option"),
        ("qemu-monitor-command a --hmp info", "command 'qemu-monitor-command' doesn't support option --hmp"),
    ];
    for (line, text) in table {
        assert_eq!(refused(line), text, "{line}");
    }
    assert!(refused("destroy a").contains("kubectl garboard stop"), "{}", refused("destroy a"));
}

#[test]
fn only_commands_of_qmp_are_sent() {
    assert!(monitor::parse("{\"execute\":\"query-status\"}").is_ok());
    for text in ["info status", "{}", "[]", "{\"execute\":1}"] {
        assert!(monitor::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_machine_without_a_supervisor_is_listed_as_off_and_hidden_ones_are_not() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("default/hello/supervisor")).unwrap();
    std::fs::create_dir_all(root.path().join("default/.hello-12/supervisor")).unwrap();
    std::fs::create_dir_all(root.path().join("default/none")).unwrap();
    let machines = Machine::all(root.path());
    assert_eq!(machines.len(), 1);
    assert_eq!(state(machines[0].status().unwrap().as_ref()), ("shut off", "unknown"));
    let nobody = run(root.path(), &split("list"), "1").unwrap();
    assert_eq!(nobody, " Id   Name   State\n--------------------\n\n");
    assert!(run(root.path(), &split("domstate 2"), "1").is_err());
    assert!(matches!(run(root.path(), &split("domblklist 1"), "1"), Err(VirshError::File { .. })));
    std::fs::write(root.path().join("default/hello/supervisor/plan.json"), b"{}").unwrap();
    // In a pod the directory is the machine's own.
    let machines = Machine::all(&root.path().join("default/hello"));
    assert_eq!(machines.iter().map(|machine| machine.number).collect::<Vec<_>>(), [1]);
}
