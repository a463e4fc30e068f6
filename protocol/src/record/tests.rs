use super::*;

fn size(record: &RunRecord) -> usize {
    serde_json::to_string(record).unwrap().len()
}

#[test]
fn an_ordinary_record_stays_as_it_is() {
    let record = RunRecord {
        uid: "u".into(),
        reason: "GuestShutdown".into(),
        message: "the guest powered itself off".into(),
        argv: vec!["/usr/bin/qemu-system-x86_64".into(), "-name".into(), "guest=ns_vm".into()],
        serial: "login: root\nmachine halts\n".into(),
        steps: vec![RunStep { name: "Running".into(), at_ms: 1 }],
        ..RunRecord::default()
    };
    assert_eq!(record.clone().bounded(), record);
}

#[test]
fn whatever_is_sent_has_room_and_of_tails_the_end_stays() {
    for letter in ["x", "\"", "\u{1b}", "\u{4f60}", "\n"] {
        let long = format!("{}the end", letter.repeat(20_000));
        let record = RunRecord {
            message: long.clone(),
            reason: long.clone(),
            argv: vec![long.clone(); 1100],
            taints: vec![long.clone(); 100],
            steps: vec![RunStep { name: long.clone(), at_ms: 0 }; 100],
            qemu_output: long.clone(),
            transcript: long.clone(),
            serial: long.clone(),
            ..RunRecord::default()
        }
        .bounded();
        assert!(size(&record) <= LONGEST_BYTES, "{letter:?}: {}", size(&record));
        assert!(record.serial.ends_with("the end") && record.qemu_output.ends_with("the end"), "{letter:?}");
        assert!(record.steps.len() <= 32 && record.taints.len() <= 16 && record.argv.len() <= 1024);
    }
}

#[test]
fn no_text_drives_a_terminal() {
    let record = RunRecord { serial: "a\r\n\u{1b}[2Jb\u{7}".into(), ..RunRecord::default() }.bounded();
    assert_eq!(record.serial, "a\n\\u{1b}[2Jb\\u{7}");
}
