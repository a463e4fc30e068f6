//! What `virtctl version` shows of the server: KubeVirt's `version.Info` (`k8s.io/apimachinery/pkg/version`). Pure.

use serde_json::{Value, json};

/// The version of KubeVirt whose API this is. `virtctl` compares the first two numbers with its own.
const MAJOR: &str = "1";
const MINOR: &str = "7";
const PATCH: &str = "0";

/// What a program was built of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build<'a> {
    /// What `scripts/version` printed.
    pub version: &'a str,
    /// What `scripts/version --build` printed: `commit=… date=… rustc=…`, without what is not known. Empty where nothing is.
    pub more: &'a str,
}

impl<'a> Build<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        let mut pairs = self.more.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The parts of a version that names its commit: `0.1.0-dev.20261124183005.g72c849a`.
    fn of_commit(&self) -> Option<(&'a str, &'a str)> {
        let mut parts = self.version.split_once("-dev.")?.1.split('.');
        Some((parts.next()?, parts.next()?.strip_prefix('g')?))
    }

    fn commit(&self) -> &'a str {
        self.get("commit").or_else(|| Some(self.of_commit()?.1)).unwrap_or_default()
    }

    fn date(&self) -> String {
        self.get("date").map(str::to_owned).or_else(|| date(self.of_commit()?.0)).unwrap_or_default()
    }

    /// Whether files differed from the commit; nothing where there was none.
    fn tree_state(&self) -> &'static str {
        match (self.commit(), self.version.contains("dirty-")) {
            ("", _) => "",
            (_, true) => "dirty",
            (_, false) => "clean",
        }
    }
}

/// The document. Empty is what is not known. `buildDate` is the time of the commit, so that all builds of one are alike. `goVersion` has
/// the compiler that was used: there is no Go in it.
#[must_use]
pub fn info(build: &Build<'_>) -> Value {
    let compiler = build.get("rustc").map_or_else(|| "rustc".to_owned(), |version| format!("rustc {version}"));
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": format!("v{MAJOR}.{MINOR}.{PATCH}+garboard.{}", build.version),
        "gitCommit": build.commit(),
        "gitTreeState": build.tree_state(),
        "buildDate": build.date(),
        "goVersion": compiler,
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture(std::env::consts::ARCH)),
    })
}

/// Go's name of an architecture, as clients know it.
fn architecture(ours: &str) -> &str {
    match ours {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// From `20261124183005` to `2026-11-24T18:30:05Z`.
fn date(digits: &str) -> Option<String> {
    if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| &digits[from..to];
    let (day, time) = ([part(0, 4), part(4, 6), part(6, 8)].join("-"), [part(8, 10), part(10, 12), part(12, 14)]);
    Some(format!("{day}T{}Z", time.join(":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `gitCommit`, `gitTreeState`, `buildDate`, `goVersion`.
    fn shown(version: &str, more: &str) -> [String; 4] {
        let info = info(&Build { version, more });
        assert_eq!(info["gitVersion"], format!("v1.7.0+garboard.{version}"));
        ["gitCommit", "gitTreeState", "buildDate", "goVersion"].map(|key| info[key].as_str().unwrap().to_owned())
    }

    #[test]
    fn what_is_known_of_a_build_is_shown_and_nothing_is_made_up() {
        let whole = "commit=72c849a0fd date=2026-11-24T18:30:05Z rustc=1.95.0";
        let dev = "0.1.0-dev.20261124183005.g72c849a";
        let dirty = format!("{dev}.dirty-0a1b2c3");
        let table = [
            (dev, "", ["72c849a", "clean", "2026-11-24T18:30:05Z", "rustc"]),
            (dev, whole, ["72c849a0fd", "clean", "2026-11-24T18:30:05Z", "rustc 1.95.0"]),
            (dirty.as_str(), "", ["72c849a", "dirty", "2026-11-24T18:30:05Z", "rustc"]),
            ("0.1.0", whole, ["72c849a0fd", "clean", "2026-11-24T18:30:05Z", "rustc 1.95.0"]),
            ("0.1.0-dirty-0a1b2c3", whole, ["72c849a0fd", "dirty", "2026-11-24T18:30:05Z", "rustc 1.95.0"]),
            ("0.1.0", "", ["", "", "", "rustc"]),
            ("0.1.0-dev", "rustc=1.95.0", ["", "", "", "rustc 1.95.0"]),
            ("0.1.0-dev.soon.gabc", "", ["abc", "clean", "", "rustc"]),
        ];
        for (version, more, expected) in table {
            assert_eq!(shown(version, more), expected, "{version} {more}");
        }
    }
}
