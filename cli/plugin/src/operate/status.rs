//! `garboard cluster status`.

use super::args::StatusArgs;
use super::gather::gather;
use super::report::{self, Report};
use crate::exit;
use crate::kubectl::{Kubectl, failed};
use crate::output::out;
use crate::table;

/// `garboard cluster status`.
pub(super) fn run(kubectl: &Kubectl, args: &StatusArgs) -> anyhow::Result<u8> {
    let report = report::judge(&gather(kubectl).map_err(failed)?, jiff::Timestamp::now());
    args.output.show(&report, || out!("{}", text(&report)))?;
    Ok(if report.well { exit::OK } else { exit::FAILED })
}

fn text(report: &Report) -> String {
    let below = |text: String| vec![String::new(), String::new(), text];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for part in &report.parts {
        let verdict = if part.well { "ok" } else { "wrong" };
        rows.push(vec![verdict.to_owned(), part.name.to_string(), part.summary.clone()]);
        for trouble in &part.troubles {
            rows.extend([below(trouble.what.clone()), below(format!("-> {}", trouble.remedy))]);
        }
    }
    table::render(&rows, &[5])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::report::{Part, Trouble};

    #[test]
    fn every_trouble_is_below_its_part() {
        let trouble = Trouble { what: "it is\nbroken".into(), remedy: "repair it".into() };
        let part = |name, well, troubles| Part { name, well, summary: "1 of 2".into(), troubles };
        let parts = vec![part("agents", false, vec![trouble]), part("nodes", true, Vec::new())];
        let report = Report { well: false, installed: true, version: "1", parts };
        let expected =
            "wrong  agents  1 of 2\n               it is broken\n               -> repair it\nok     nodes   1 of 2\n";
        assert_eq!(text(&report), expected);
    }
}
