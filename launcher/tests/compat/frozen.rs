//! Messages to a program that is as old as its machine's last start, and from it: PID 1, and a kubelet's probe, which is of
//! the image that `compute` was started from. They only grow: every key that an earlier build wrote is written today, with
//! a value of the same kind, because an old reader may demand it.

use serde_json::Value;

use super::{Kind, kinds, recorded};

/// What the names of these samples begin with.
const FROZEN: &[&str] =
    &["to-init-", "to-supervisor-", "asked-probe.json", "answered-healthy.json", "answered-denied.json"];
/// A build of before they were frozen.
const BEFORE: &str = "8ee2679";
/// Keys whose value is a name of the protocol: it stays as it is.
const FIXED: &[&str] = &["supervisor", "init", "state", "how", "ask", "answer", "question"];

#[test]
fn messages_of_pid_1_only_grow() {
    let (mut compared, mut wrong) = (0, Vec::new());
    let is_frozen = |name: &str| FROZEN.iter().any(|beginning| name.starts_with(beginning));
    for Kind { name, value, .. } in kinds().into_iter().filter(|kind| is_frozen(kind.name)) {
        for file in recorded::all(name).into_iter().filter(|file| !file.is_of(BEFORE)) {
            let before: Value = serde_json::from_slice(&file.bytes).unwrap();
            let at = file.path.display().to_string();
            missing(&before, &value, &at, &mut wrong);
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "a PID 1 or a probe of before may demand it:\n{}", wrong.join("\n"));
    assert!(compared >= 6, "{compared}");
}

/// What of a recorded value is not in that of today.
fn missing(before: &Value, today: &Value, at: &str, wrong: &mut Vec<String>) {
    match (before, today) {
        (Value::Object(before), Value::Object(today)) => {
            for (key, before) in before {
                match today.get(key) {
                    Some(today) if FIXED.contains(&key.as_str()) && before.is_string() && before != today => {
                        wrong.push(format!("{at}/{key}: {before} is {today}"));
                    }
                    Some(today) => missing(before, today, &format!("{at}/{key}"), wrong),
                    None => wrong.push(format!("{at}/{key}: it is not written any more")),
                }
            }
        }
        (Value::Array(before), Value::Array(today)) => {
            if today.len() < before.len() {
                wrong.push(format!("{at}: there were {} of them", before.len()));
            }
            for (place, (before, today)) in before.iter().zip(today).enumerate() {
                missing(before, today, &format!("{at}/{place}"), wrong);
            }
        }
        // What was not there then may have any value.
        (Value::Null, _) => {}
        (before, today) if std::mem::discriminant(before) != std::mem::discriminant(today) => {
            wrong.push(format!("{at}: {before} is {today}"));
        }
        _ => {}
    }
}

#[test]
fn a_key_that_is_left_out_renamed_or_of_another_kind_is_noticed() {
    let before =
        serde_json::json!({"supervisor": "launch", "argv": ["a"], "helpers": [{"argv": [], "descriptor": 12}]});
    let changes: [fn(&mut Value); 5] = [
        |it| drop(it.as_object_mut().unwrap().remove("argv")),
        |it| it["supervisor"] = "start".into(),
        |it| it["argv"] = "a".into(),
        |it| it["helpers"][0] = serde_json::json!({"argv": [], "fd": 12}),
        |it| it["helpers"][0]["descriptor"] = "12".into(),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        let (mut today, mut wrong) = (before.clone(), Vec::new());
        change(&mut today);
        missing(&before, &today, "", &mut wrong);
        assert_eq!(wrong.len(), 1, "{place}: {wrong:?}");
    }
    let (mut more, mut wrong) = (before.clone(), Vec::new());
    more["new"] = 1.into();
    missing(&before, &more, "", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:?}");
}
