//! nftables by the `nft` program: scripts go in as text, listings come out as JSON.
//!
//! A program and not a library, because libnftables is C and its netlink messages are no stable
//! interface, while the command is, for scripts and for JSON (libnftables-json(5)).

use serde::Deserialize;

use super::Kernel;
use super::tool::Tool;
use crate::error::NetError;
use crate::plan::ruleset::Ruleset;
use crate::seam::{Nft, Outline};

impl Kernel<'_> {
    async fn nft(&self, arguments: &[&str], doing: &str, input: String) -> Result<String, NetError> {
        let limit = self.paths.tool_limit;
        let tool = Tool { program: &self.paths.nft, package: "nftables", arguments, doing, limit };
        tool.run(self.namespace, input).await
    }

    fn unreadable(&self, source: serde_json::Error) -> NetError {
        NetError::ToolAnswer { program: self.paths.nft.clone(), source }
    }
}

impl Nft for Kernel<'_> {
    async fn outline(&self, table: &str) -> Result<Option<Outline>, NetError> {
        let tables = self.nft(&["-j", "list", "tables", "inet"], "list the tables", String::new()).await?;
        let tables: Listing = serde_json::from_str(&tables).map_err(|source| self.unreadable(source))?;
        if !tables.nftables.iter().filter_map(|object| object.table.as_ref()).any(|listed| listed.name == table) {
            return Ok(None);
        }
        let doing = format!("list the table `{table}`");
        let answer = self.nft(&["-j", "list", "table", "inet", table], &doing, String::new()).await?;
        outline(&answer).map(Some).map_err(|source| self.unreadable(source))
    }

    async fn replace(&self, ruleset: &Ruleset) -> Result<(), NetError> {
        let doing = format!("replace the table `{}`", ruleset.table);
        self.nft(&["-f", "-"], &doing, ruleset.script()).await.map(drop)
    }

    async fn delete_table(&self, table: &str) -> Result<(), NetError> {
        // Adding first makes the deletion succeed when there is nothing, in the same transaction.
        let script = format!("table inet {table}\ndelete table inet {table}\n");
        self.nft(&["-f", "-"], &format!("delete the table `{table}`"), script).await.map(drop)
    }

    async fn list_chains(&self) -> Result<String, NetError> {
        self.nft(&["-j", "list", "chains"], "list the chains", String::new()).await
    }
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    table: Option<Named>,
    chain: Option<Named>,
    rule: Option<ListedRule>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct ListedRule {
    chain: String,
    #[serde(default)]
    comment: String,
}

fn outline(answer: &str) -> Result<Outline, serde_json::Error> {
    let listing: Listing = serde_json::from_str(answer)?;
    let mut outline = Outline::new();
    for object in listing.nftables {
        if let Some(chain) = object.chain {
            outline.push((chain.name, Vec::new()));
        } else if let Some(rule) = object.rule
            && let Some((_, comments)) = outline.iter_mut().find(|(name, _)| *name == rule.chain)
        {
            comments.push(rule.comment);
        }
    }
    Ok(outline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_lists_chains_in_order_with_the_comments_of_their_rules() {
        let answer = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"table": {"family": "inet", "name": "x", "handle": 1}},
            {"chain": {"family": "inet", "table": "x", "name": "b", "handle": 1}},
            {"chain": {"family": "inet", "table": "x", "name": "a", "handle": 2}},
            {"rule": {"family": "inet", "table": "x", "chain": "a", "handle": 3, "comment": "one #1", "expr": [{"drop": null}]}},
            {"rule": {"family": "inet", "table": "x", "chain": "a", "handle": 4, "expr": [{"drop": null}]}}]}"#;
        let expected = vec![("b".to_owned(), vec![]), ("a".to_owned(), vec!["one #1".to_owned(), String::new()])];
        assert_eq!(outline(answer).unwrap(), expected);
        assert!(outline("{}").is_err());
    }
}
