//! `docs/compatibility.md` has the fields, gates and annotations of the table. The parts between its marks are
//! generated: `GARBOARD_GOLDEN=update cargo test -p garboard-api --test compatibility` writes them anew.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::fmt::Write;

use garboard_api::fields::{
    ANNOTATIONS, Behind, Fate, INSTANCE, Line, MACHINE, OF_MACHINES, POOL, PRESET, REPLICA_SET, SETTINGS, Setting,
    TABLES, Table, When, gates,
};

const FILE: &str = "../docs/compatibility.md";

#[test]
fn the_document_has_what_the_table_has() {
    let committed = std::fs::read_to_string(FILE).unwrap();
    let parts = [
        ("instance", fields(&INSTANCE)),
        ("machine", fields(&MACHINE)),
        ("replica set", fields(&REPLICA_SET)),
        ("preset", fields(&PRESET)),
        ("pool", fields(&POOL)),
        ("settings", fields(&SETTINGS)),
        ("status", statuses()),
        ("annotations", annotations()),
        ("gates", all_gates()),
    ];
    let text = parts.iter().fold(committed.clone(), |text, (name, part)| with_part(&text, name, part));
    if std::env::var("GARBOARD_GOLDEN").as_deref() == Ok("update") {
        std::fs::write(FILE, &text).unwrap();
    } else {
        assert!(committed == text, "{FILE} differs from the table: update it (see the head of this test)");
    }
}

/// The document with a part replaced, which must be there.
fn with_part(text: &str, name: &str, part: &str) -> String {
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{FILE} has no mark for {name}"));
    let (_, after) = rest.split_once(end).unwrap();
    format!("{before}{begin}{part}{end}{after}")
}

/// What of a part works, is refused or warned of. Where everything works there is no table.
fn fields(table: &Table) -> String {
    let (is_of_a_cluster, rows) = (is_of_a_cluster(table), rows(table));
    let mut text = match rows.as_str() {
        "" => String::new(),
        rows => format!("| field | in a cluster | on a bare host |\n| --- | --- | --- |\n{rows}\n"),
    };
    let title = if is_of_a_cluster { "Works in a cluster" } else { "Works in every setting" };
    writeln!(text, "{title}:\n").unwrap();
    for line in table.all().filter(|line| outcomes(line).iter().all(|text| text == "works")) {
        listed(&mut text, table, line);
    }
    text
}

/// The fields that do not work in every setting.
fn rows(table: &Table) -> String {
    let mut text = String::new();
    for line in table.all() {
        let [cluster, bare_host] = outcomes(line);
        if cluster == bare_host && cluster == "works" {
            continue;
        }
        let bare_host = if is_of_a_cluster(table) {
            "–"
        } else if cluster == bare_host {
            "as in a cluster"
        } else {
            bare_host.as_str()
        };
        for path in line.paths() {
            writeln!(text, "| `{}.{path}` | {cluster} | {bare_host} |", table.part).unwrap();
        }
    }
    text
}

/// Whether a bare host refuses objects of this kind: it has neither settings of a cluster nor a controller nor presets.
fn is_of_a_cluster(table: &Table) -> bool {
    const KINDS: [&str; 4] =
        ["KubeVirt", "VirtualMachineInstanceReplicaSet", "VirtualMachineInstancePreset", "VirtualMachinePool"];
    KINDS.contains(&table.kind)
}

/// What becomes of a line's fields in a cluster and on a bare host.
fn outcomes(line: &Line) -> [String; 2] {
    [Setting::Cluster, Setting::BareHost].map(|setting| outcome(line.fate(setting)))
}

fn outcome(fate: Fate) -> String {
    match fate {
        Fate::Read(_) | Fate::Handed(_) => "works".to_owned(),
        Fate::Name => "a name, of which nothing follows".to_owned(),
        Fate::NeverWritten => "never written".to_owned(),
        Fate::Refused { when, why, instead } => {
            let why = if why.ends_with("does not support it") { "not supported in this version" } else { why };
            format!("**refused**{}: {why}; {instead}", condition(when))
        }
        Fate::Warned { when, what, instead } => format!("**warned of**{}: {what}; {instead}", condition(when)),
    }
}

fn condition(when: When) -> String {
    match when {
        When::Written | When::Filled => String::new(),
        When::True => " when `true`".to_owned(),
        When::False => " when `false`".to_owned(),
        When::Enabled => " unless `enabled: false`".to_owned(),
        When::Is(value) => format!(" when `{value}`"),
        When::OtherThan(value) => format!(" unless `{value}`"),
        When::OtherKeys(known) => format!(" with other keys than `{}`", known.join("`, `")),
    }
}

/// What a client finds in each status, and what it never finds there.
fn statuses() -> String {
    let mut text = String::new();
    for table in TABLES.iter().filter(|table| table.part == "status") {
        for (title, is_written) in [("written", true), ("never written", false)] {
            let blank = if text.is_empty() { "" } else { "\n" };
            writeln!(text, "{blank}{}, {title}:\n", table.kind).unwrap();
            let of_title = |line: &&Line| (line.fate(Setting::Cluster) != Fate::NeverWritten) == is_written;
            for line in table.all().filter(of_title) {
                listed(&mut text, table, line);
            }
        }
    }
    text
}

/// A line of the table as an item of a list.
fn listed(text: &mut String, table: &Table, line: &Line) {
    let names: Vec<String> = line.fields.split_whitespace().map(|field| format!("`{field}`")).collect();
    let under = if line.under.is_empty() { table.part.to_owned() } else { format!("{}.{}", table.part, line.under) };
    writeln!(text, "- `{under}`: {}", names.join(", ")).unwrap();
}

fn annotations() -> String {
    let mut text = "| annotation | on | |\n| --- | --- | --- |\n".to_owned();
    for (list, kind) in [(ANNOTATIONS, "instance, template"), (OF_MACHINES, "machine")] {
        for annotation in list {
            writeln!(text, "| `{}` | {kind} | {} |", annotation.key, outcome(annotation.fate)).unwrap();
        }
    }
    text
}

fn all_gates() -> String {
    let mut all: Vec<(&str, &str)> = gates()
        .map(|(name, behind)| match behind {
            Behind::Switch => (name, "followed"),
            Behind::Always => (name, "always on"),
            Behind::Nothing(why) => (name, why),
        })
        .collect();
    all.sort_unstable();
    let rows = all.into_iter().map(|(name, outcome)| format!("| `{name}` | {outcome} |\n"));
    format!("| gate | |\n| --- | --- |\n{}", rows.collect::<String>())
}
