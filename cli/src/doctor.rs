//! `garboard doctor`: what this host can do for machines, and the remedy for what it cannot. Rendering only: the judgement
//! is `garboard_host::diagnose`.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use garboard_host::{Check, CheckVerdict, Freshness, can_run, diagnose};
use garboard_shim_client::places::Places;
use serde::Serialize;

use crate::args::Output;
use crate::exit;
use crate::host::gather_options;
use crate::output::{out, outln};

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 machines can run here, if with less; 1 they cannot.

Examples:
  garboard doctor
  garboard doctor -o json | jq '.checks[] | select(.verdict != \"ok\") | .remedy'
  garboard doctor --qemu /opt/qemu/bin/qemu-system-x86_64
  garboard doctor --facts > host.json      # for `garboard explain --facts host.json` elsewhere")]
pub(crate) struct DoctorArgs {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Examine this QEMU instead of the first one found.
    #[arg(long, value_name = "PATH")]
    pub(crate) qemu: Option<PathBuf>,
    /// Print the facts a plan is made from, as JSON, instead of advice.
    #[arg(long, conflicts_with = "output")]
    pub(crate) facts: bool,
}

/// What `-o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    /// Nothing essential is missing.
    can_run: bool,
    checks: &'a [Check],
}

/// `garboard doctor`.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let places = Places::of_caller(None)?;
    let mut options = gather_options(&places, args.qemu.as_deref());
    // Facts are gathered anew, not read from the cache. What is found is kept for `run`.
    options.freshness = Freshness::Fresh;
    if args.facts {
        outln!("{}", serde_json::to_string_pretty(&garboard_host::gather(&options)?)?)?;
        return Ok(exit::OK);
    }
    let checks = diagnose(&options, &[places.runtime, places.state, places.cache])?;
    let report = Report { can_run: can_run(&checks), checks: &checks };
    args.output.show(&report, || out!("{}", table(&checks, Style::of_standard_output())))?;
    Ok(if can_run(&checks) { exit::OK } else { exit::FAILED })
}

/// Whether colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours for a terminal, unless its user asks for none (<https://no-color.org>).
    fn of_standard_output() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused { Self::Coloured } else { Self::Plain }
    }

    /// A line that begins with a verdict's text.
    fn line(self, line: &str) -> String {
        let colour = VERDICTS.iter().find_map(|(_, text, colour)| Some((colour, line.strip_prefix(text)?, text)));
        match (self, colour) {
            (Self::Coloured, Some((colour, rest, text))) => format!("\x1b[{colour}m{text}\x1b[0m{rest}"),
            (Self::Plain, _) | (_, None) => line.to_owned(),
        }
    }
}

/// Verdicts with their texts and colours.
const VERDICTS: [(CheckVerdict, &str, u8); 3] =
    [(CheckVerdict::Ok, "ok", 32), (CheckVerdict::Degraded, "degraded", 33), (CheckVerdict::Missing, "missing", 31)];

fn table(checks: &[Check], style: Style) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for Check { title, verdict, detail, remedy, .. } in checks {
        let text = VERDICTS.iter().find(|(each, ..)| each == verdict).map_or("", |(_, text, _)| text);
        rows.push(vec![text.to_owned(), (*title).to_owned(), detail.clone()]);
        rows.extend(remedy.iter().map(|remedy| vec![String::new(), String::new(), format!("-> {remedy}")]));
    }
    let plain = crate::table::render(&rows, &[8]);
    let mut text: String = plain.lines().map(|line| style.line(line) + "\n").collect();
    let lesser = checks.iter().filter(|check| check.verdict != CheckVerdict::Ok).count();
    text.push_str(&match (can_run(checks), lesser) {
        (false, _) => "\nNo machine can run here; repair what is missing first.\n".to_owned(),
        (true, 0) => "\nMachines run here.\n".to_owned(),
        (true, 1) => "\nMachines run here; one thing could be better.\n".to_owned(),
        (true, count) => format!("\nMachines run here; {count} things could be better.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use garboard_host::Weight;

    fn check(title: &'static str, verdict: CheckVerdict, weight: Weight) -> Check {
        let remedy = (verdict != CheckVerdict::Ok).then(|| "modprobe it".to_owned());
        Check { id: "x", title, verdict, weight, detail: "found".to_owned(), remedy }
    }

    #[test]
    fn columns_are_aligned_and_every_defect_has_its_advice() {
        let checks = [
            check("KVM", CheckVerdict::Ok, Weight::Optional),
            check("Processor", CheckVerdict::Degraded, Weight::Optional),
        ];
        let expected = "ok        KVM        found\n\
                        degraded  Processor  found\n                     -> modprobe it\n\n\
                        Machines run here; one thing could be better.\n";
        assert_eq!(table(&checks, Style::Plain), expected);
    }

    #[test]
    fn what_is_missing_and_essential_is_named_last() {
        let missing = |weight| table(&[check("QEMU", CheckVerdict::Missing, weight)], Style::Plain);
        assert!(missing(Weight::Essential).ends_with("No machine can run here; repair what is missing first.\n"));
        assert!(missing(Weight::Optional).contains("Machines run here; one thing"));
    }

    #[test]
    fn colours_do_not_move_columns() {
        let checks =
            [check("KVM", CheckVerdict::Ok, Weight::Optional), check("QEMU", CheckVerdict::Missing, Weight::Essential)];
        let mut coloured = table(&checks, Style::Coloured);
        for code in ["\x1b[32m", "\x1b[31m", "\x1b[0m"] {
            assert!(coloured.contains(code));
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, table(&checks, Style::Plain));
    }

    #[test]
    fn json_is_for_programs() {
        let checks = [check("QEMU", CheckVerdict::Missing, Weight::Essential)];
        let text = serde_json::to_string(&Report { can_run: can_run(&checks), checks: &checks }).unwrap();
        let expected = r#"{"canRun":false,"checks":[{"id":"x","title":"QEMU","verdict":"missing","weight":"essential","detail":"found","remedy":"modprobe it"}]}"#;
        assert_eq!(text, expected);
    }
}
