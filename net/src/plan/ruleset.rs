//! An nft table as a value and its one rendering as a script for `nft -f -`.
//!
//! Text and not nft's JSON, because the text is what `nft list table` shows to an administrator. Every rule
//! carries a comment with its purpose and a hash of its text: the comments in a listing show whether
//! the table in the kernel is still the one that was planned, without comparing nft's own spelling of the
//! rules, which differs between its versions. Source followed: nft(8) of nftables 1.0.6.

use std::fmt::{self, Write as _};

use crate::names::fingerprint;

/// A table of family `inet` that is replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// Its name; only this project's prefixes are used.
    pub table: String,
    /// In the order in which they are written. A chain that is jumped to comes before the chains that jump.
    pub chains: Vec<Chain>,
}

/// One chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: &'static str,
    /// Where packets enter it; absent for a chain that is only jumped to.
    pub hook: Option<Hook>,
    /// In order.
    pub rules: Vec<Rule>,
}

/// Where a base chain sits. All of ours accept by default: what they drop they name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Destinations of arriving packets.
    NatPrerouting,
    /// Destinations of packets made here.
    NatOutput,
    /// Sources of leaving packets.
    NatPostrouting,
    /// Packets passing through.
    FilterForward,
    /// Packets for this namespace itself.
    FilterInput,
}

impl Hook {
    fn definition(self) -> &'static str {
        match self {
            Self::NatPrerouting => "type nat hook prerouting priority dstnat; policy accept;",
            Self::NatOutput => "type nat hook output priority -100; policy accept;",
            Self::NatPostrouting => "type nat hook postrouting priority srcnat; policy accept;",
            Self::FilterForward => "type filter hook forward priority filter; policy accept;",
            Self::FilterInput => "type filter hook input priority filter; policy accept;",
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Matches and verdict, in nft's syntax.
    pub text: String,
    /// The purpose, a short text without quotes.
    pub purpose: &'static str,
}

impl Rule {
    /// A rule with this text and purpose.
    pub fn new(purpose: &'static str, text: String) -> Self {
        Self { text, purpose }
    }

    /// The comment the kernel keeps beside the rule.
    pub fn comment(&self) -> String {
        format!("{} #{:08x}", self.purpose, fingerprint(&self.text) >> 32)
    }
}

impl Ruleset {
    /// What a listing of this table must show: of each chain in order, the comments of its rules.
    pub fn outline(&self) -> Vec<(String, Vec<String>)> {
        let comments = |chain: &Chain| chain.rules.iter().map(Rule::comment).collect();
        self.chains.iter().map(|chain| (chain.name.to_owned(), comments(chain))).collect()
    }

    /// The script that puts exactly this table in place of whatever was there under its name, in one
    /// transaction.
    pub fn script(&self) -> String {
        format!("table inet {0}\ndelete table inet {0}\n{self}", self.table)
    }
}

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table inet {} {{", self.table)?;
        for chain in &self.chains {
            writeln!(f, "\tchain {} {{", chain.name)?;
            if let Some(hook) = chain.hook {
                writeln!(f, "\t\t{}", hook.definition())?;
            }
            for rule in &chain.rules {
                writeln!(f, "\t\t{} comment \"{}\"", rule.text, rule.comment())?;
            }
            f.write_str("\t}\n")?;
        }
        f.write_char('}')?;
        f.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_rule_changes_its_comment_and_nothing_else() {
        let rule = |text: &str| Rule::new("guest to outside", text.to_owned());
        assert_ne!(rule("accept").comment(), rule("drop").comment());
        assert_eq!(rule("accept").comment(), rule("accept").comment());
        assert!(rule("accept").comment().starts_with("guest to outside #"));
    }

    #[test]
    fn the_script_replaces_the_table_in_one_transaction() {
        let rules = vec![Rule::new("why", "accept".to_owned())];
        let chains = vec![Chain { name: "forward", hook: Some(Hook::FilterForward), rules }];
        let script = Ruleset { table: "garboard_x".to_owned(), chains }.script();
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(lines[..3], ["table inet garboard_x", "delete table inet garboard_x", "table inet garboard_x {"]);
        assert_eq!(lines.last(), Some(&"}"));
    }
}
