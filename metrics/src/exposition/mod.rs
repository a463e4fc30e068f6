//! The text that Prometheus reads: its exposition format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats>). Pure.
//!
//! Not OpenMetrics: that adds `_total` to the name of every counter, and five counters of KubeVirt have names without it.
//!
//! Label values may be what a guest says (a mount point, a kernel release): they are escaped and cut here, each of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::catalogue::{Kind, Metric};
use crate::histogram::Seen;

/// What the text is sent as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The most characters of a label's value; what is longer is cut.
pub const LONGEST_VALUE: usize = 256;

/// Names and values, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels(String);

impl Labels {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// In this order. An empty value is the same as none to Prometheus, and is left out.
    #[must_use]
    pub fn of(pairs: &[(&str, &str)]) -> Self {
        pairs.iter().fold(Self::none(), |labels, (name, value)| labels.and(name, value))
    }

    /// With one more.
    #[must_use]
    pub fn and(mut self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for character in value.chars().take(LONGEST_VALUE) {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }
}

/// Samples, by metric.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    by_name: BTreeMap<&'static str, Family>,
}

#[derive(Clone, Debug)]
struct Family {
    metric: &'static Metric,
    lines: String,
}

impl Exposition {
    /// One more sample.
    pub fn add(&mut self, metric: &'static Metric, labels: &Labels, value: f64) {
        line(self.lines(metric), metric.name, labels, value);
    }

    /// The samples of a histogram: its buckets, the sum and the count.
    pub fn add_histogram(&mut self, metric: &'static Metric, labels: &Labels, seen: &Seen) {
        let lines = self.lines(metric);
        let (bucket, sum, count) =
            (format!("{}_bucket", metric.name), format!("{}_sum", metric.name), format!("{}_count", metric.name));
        for (end, number) in &seen.up_to {
            line(lines, &bucket, &labels.clone().and("le", &number_text(*end)), as_float(*number));
        }
        line(lines, &bucket, &labels.clone().and("le", "+Inf"), as_float(seen.count));
        line(lines, &sum, labels, seen.sum);
        line(lines, &count, labels, as_float(seen.count));
    }

    /// All of another one, after what is here.
    pub fn append(&mut self, other: Self) {
        for Family { metric, lines } in other.by_name.into_values() {
            self.lines(metric).push_str(&lines);
        }
    }

    /// The text, metrics in the order of their names.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.by_name.values().map(|family| family.lines.len() + 256).sum());
        for Family { metric, lines } in self.by_name.values() {
            let Metric { name, kind, help, .. } = metric;
            // Writing to a text does not fail.
            let _ = writeln!(text, "# HELP {name} {help}");
            let _ = writeln!(text, "# TYPE {name} {}", kind.name());
            text.push_str(lines);
        }
        text
    }

    /// How many bytes its samples have.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.by_name.values().map(|family| family.lines.len()).sum()
    }

    fn lines(&mut self, metric: &'static Metric) -> &mut String {
        &mut self.by_name.entry(metric.name).or_insert_with(|| Family { metric, lines: String::new() }).lines
    }
}

fn line(lines: &mut String, name: &str, labels: &Labels, value: f64) {
    let value = number_text(value);
    let _ = match labels.0.as_str() {
        "" => writeln!(lines, "{name} {value}"),
        labels => writeln!(lines, "{name}{{{labels}}} {value}"),
    };
}

/// As Prometheus writes it. Rust's form of a number is one that it reads, but for those that are none.
fn number_text(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// A count. Above 2⁵³ it is not exact, as in Prometheus itself.
#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
#[must_use]
pub fn as_float(count: u64) -> f64 {
    count as f64
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[cfg(test)]
mod tests;
