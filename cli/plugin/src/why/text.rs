//! A diagnosis on one screen.

use std::fmt::Write;

use jiff::Timestamp;

use super::diagnosis::{Diagnosis, Evidence, Health};
use super::facts::age;

/// Evidence that is shown; the rest is in `-o json`.
const MOST_EVIDENCE: usize = 8;
/// The most characters of an object's text on a screen.
const LONGEST_VALUE: usize = 200;
/// A word of more characters, such as a path, may be cut.
const LONGEST_WORD: usize = 30;
/// What stands for what was left out.
const GAP: &str = " … ";

/// For a person.
#[must_use]
pub fn screen(diagnosis: &Diagnosis, now: Timestamp) -> String {
    let mut out = String::new();
    let since = diagnosis.since.map(|since| format!(", for {}", age(since, now))).unwrap_or_default();
    let node = diagnosis.node.as_ref().map(|node| format!(", on {node}")).unwrap_or_default();
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}: {}{since}{node}", diagnosis.machine, diagnosis.state);
    let _ = writeln!(out, "{} {}", mark(diagnosis.health), with_full_stop(&diagnosis.cause));
    for also in &diagnosis.also {
        let _ = writeln!(out, "also      {}", with_full_stop(also));
    }
    if !diagnosis.evidence.is_empty() {
        let _ = writeln!(out, "\nSeen:");
        out.push_str(&table(&diagnosis.evidence, now));
    }
    if !diagnosis.next.is_empty() {
        let _ = writeln!(out, "\nTo do:");
        for next in &diagnosis.next {
            let _ = writeln!(out, "  {}", plain(next));
        }
    }
    if !diagnosis.unseen.is_empty() {
        let _ = writeln!(out, "\nNot seen:");
        for unseen in &diagnosis.unseen {
            let _ = writeln!(out, "  {}", plain(unseen));
        }
    }
    out
}

fn mark(health: Health) -> &'static str {
    match health {
        Health::Well => "well     ",
        Health::Waiting => "waiting  ",
        Health::Wrong => "wrong    ",
    }
}

fn table(evidence: &[Evidence], now: Timestamp) -> String {
    let row = |one: &Evidence| {
        let ago = one.since.map(|since| format!(" ({})", age(since, now))).unwrap_or_default();
        let value = shortened(&plain(&one.value), LONGEST_VALUE);
        vec![one.object.clone(), one.field.clone(), format!("{value}{ago}")]
    };
    let rows: Vec<Vec<String>> = evidence.iter().take(MOST_EVIDENCE).map(row).collect();
    crate::table::render(&rows, &[]).lines().map(|line| format!("  {line}\n")).collect()
}

/// At most so many characters. The middle is left out, between two spaces: of a chain of errors the last one is the cause.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= longest {
        return text.to_owned();
    }
    let room = longest.saturating_sub(GAP.chars().count());
    let (head, tail) = (room / 3, all.len() - (room - room / 3));
    let is_space = |at: &usize| all.get(*at).is_some_and(|one| one.is_whitespace());
    // What is longer than a word is cut where it has to be.
    let head = (head.saturating_sub(LONGEST_WORD)..=head).rev().find(is_space).unwrap_or(head);
    let tail = (tail.saturating_sub(1)..tail.saturating_add(LONGEST_WORD)).find(is_space).unwrap_or(tail);
    let part = |chars: &[char]| chars.iter().collect::<String>().trim().to_owned();
    format!("{}{GAP}{}", part(all.get(..head).unwrap_or_default()), part(all.get(tail..).unwrap_or_default()))
}

/// With a full stop, unless it ends by itself.
fn with_full_stop(text: &str) -> String {
    let text = plain(text);
    if text.ends_with(['.', '?', '…']) { text } else { format!("{text}.") }
}

/// Text of other programs without control characters, so that it cannot drive the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::diagnosis::{DiagnosisVerdict, seen};

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let error = "Failed to pull image \"quay.io/team/disk:1\": failed to pull and unpack image \"quay.io/team/disk:1\": \
                     failed to resolve reference: dial tcp: lookup quay.io on 10.0.0.10:53: i/o timeout";
        let short = shortened(error, 120);
        assert_eq!(
            short,
            "Failed to pull image … to resolve reference: dial tcp: lookup quay.io on 10.0.0.10:53: i/o timeout"
        );
        assert_eq!(shortened("one two", 7), "one two");
        assert_eq!(shortened("one two three four five", 15), "one … five");
        let whole = shortened(&"x".repeat(500), 30);
        assert_eq!(whole.chars().count(), 30, "{whole}");
    }

    #[test]
    fn a_screen_is_short_and_aligned() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let diagnosis = Diagnosis {
            machine: "tenant/hello".into(),
            state: "ErrorUnschedulable".into(),
            verdict: DiagnosisVerdict::NoRoom,
            health: Health::Wrong,
            since: Some(at(0)),
            cause: "no node has 64 GiB of memory left".into(),
            node: None,
            evidence: vec![seen("pod/x", "a", "1", Some(at(60))), seen("vmi/hello", "long", "\u{1b}[2J", None)],
            next: vec!["kubectl describe nodes".into()],
            also: vec!["it is slow.".into()],
            unseen: vec!["nodes: you may not see them".into()],
        };
        let expected = "tenant/hello: ErrorUnschedulable, for 5 min\n\
            wrong     no node has 64 GiB of memory left.\n\
            also      it is slow.\n\n\
            Seen:\n  pod/x      a     1 (4 min)\n  vmi/hello  long   [2J\n\n\
            To do:\n  kubectl describe nodes\n\n\
            Not seen:\n  nodes: you may not see them\n";
        assert_eq!(screen(&diagnosis, at(300)), expected);
    }
}
