//! `garboard cluster status`.

use super::args::StatusArgs;
use super::gather::gather;
use super::report::{self, Report};
use crate::args::Output;
use crate::exit;
use crate::plugin::kubectl::{Kubectl, failed};

/// `garboard cluster status`.
pub(super) fn run(kubectl: &Kubectl, args: &StatusArgs) -> anyhow::Result<u8> {
    let report = report::judge(&gather(kubectl).map_err(failed)?, jiff::Timestamp::now());
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Text => print!("{}", text(&report)),
    }
    Ok(if report.well { exit::OK } else { exit::FAILED })
}

fn text(report: &Report) -> String {
    let width = report.parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for part in &report.parts {
        let word = if part.well { "ok" } else { "wrong" };
        out.push_str(&format!("{word:5}  {:width$}  {}\n", part.name, part.summary));
        for trouble in &part.troubles {
            let plain =
                |text: &str| text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect::<String>();
            out.push_str(&format!("{:5}  {:width$}  {}\n", "", "", plain(&trouble.what)));
            out.push_str(&format!("{:5}  {:width$}  -> {}\n", "", "", plain(&trouble.mend)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::report::{Part, Trouble};

    #[test]
    fn every_trouble_is_below_its_part() {
        let trouble = Trouble { what: "it is\nbroken".into(), mend: "mend it".into() };
        let part = |name, well, troubles| Part { name, well, summary: "1 of 2".into(), troubles };
        let parts = vec![part("agents", false, vec![trouble]), part("nodes", true, Vec::new())];
        let report = Report { well: false, installed: true, version: "1", parts };
        let expected =
            "wrong  agents  1 of 2\n               it is broken\n               -> mend it\nok     nodes   1 of 2\n";
        assert_eq!(text(&report), expected);
    }
}
