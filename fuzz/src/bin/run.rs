//! Runs fuzz targets on stable Rust: `run [--seconds N] [--seed N] [--input FILE] [TARGET…]`.
//!
//! Without targets all are run, `--seconds` each (default 10). `--input` feeds one file once: to look at a finding.
//! Ends with 1 on a finding and 2 on a wrong command line.

use std::process::ExitCode;
use std::time::Duration;

use garboard_fuzz::run::{Budget, Outcome, feed, run};
use garboard_fuzz::{TARGETS, Target};

struct Options {
    seconds: u64,
    seed: u64,
    input: Option<String>,
    targets: Vec<&'static Target>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seconds: 10, seed: 1, input: None, targets: Vec::new() };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match argument.as_str() {
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--input" => options.input = Some(value()?),
            name => {
                let target = TARGETS.iter().find(|target| target.name == name);
                let known = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
                options.targets.push(target.ok_or_else(|| format!("no target {name}; there are {}", known()))?);
            }
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.iter().collect();
    }
    Ok(options)
}

fn fuzz(options: &Options) -> std::io::Result<bool> {
    let mut is_clean = true;
    for target in &options.targets {
        if let Some(path) = &options.input {
            let result = feed(target, &std::fs::read(path)?);
            println!("{}: {path}: {}", target.name, result.as_ref().err().map_or("no finding", String::as_str));
            is_clean &= result.is_ok();
            continue;
        }
        match run(target, Budget::Time(Duration::from_secs(options.seconds)), options.seed)? {
            Outcome::Clean(count) => println!("{}: {count} inputs in {} s, no finding", target.name, options.seconds),
            Outcome::Finding { saved, what } => {
                println!("{}: {what}; input saved as {}", target.name, saved.display());
                is_clean = false;
            }
        }
    }
    Ok(is_clean)
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("run: {mistake}");
            return ExitCode::from(2);
        }
    };
    match fuzz(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("run: {error}");
            ExitCode::from(2)
        }
    }
}
