//! The roles of users (`deploy/base/user-roles.yaml`) have every subresource that is served, and no other.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::BTreeSet;

use garboard_subresources::routes::{Action, ROUTES, Route};

/// Of the group itself and not of a machine: every user that is authenticated may read them.
const OF_THE_GROUP: &[&str] = &["version", "guestfs"];

/// The resources that rules for `subresources.kubevirt.io` name.
fn given() -> BTreeSet<String> {
    let text = std::fs::read_to_string("../deploy/base/user-roles.yaml").unwrap();
    let mut lines = text.lines();
    let mut found = BTreeSet::new();
    while let Some(line) = lines.next() {
        if line.contains("apiGroups: [subresources.kubevirt.io]") {
            let listed = lines.next().unwrap().split_once('[').unwrap().1.trim_end_matches(']');
            found.extend(listed.split(',').map(|each| each.trim().to_owned()));
        }
    }
    found
}

#[test]
fn roles_and_served_routes_are_the_same() {
    let served: BTreeSet<String> =
        ROUTES.iter().filter(|route| route.action != Action::NotServed).map(Route::name).collect();
    let given: BTreeSet<String> = given().into_iter().filter(|each| !OF_THE_GROUP.contains(&each.as_str())).collect();
    assert_eq!(served, given, "left: subresources/src/routes.rs, right: deploy/base/user-roles.yaml");
    assert!(served.len() >= 5, "{served:?}");
}
