//! The roles of users (`deploy/base/user-roles.yaml`) and `docs/compatibility.md` have every route that is served, with its
//! verb, and no other.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::{BTreeMap, BTreeSet};

use garboard_subresources::routes::{FIRST_ROUTES, ROUTES};

/// Routes with their verbs.
type Given = BTreeSet<(String, String)>;

/// What the role `view` has: routes that change nothing.
const VIEW: &[(&str, &str)] = &[
    ("virtualmachines/expand-spec", "get"),
    ("expand-vm-spec", "update"),
    ("virtualmachineinstances/guestosinfo", "get"),
    ("virtualmachineinstances/userlist", "get"),
    ("virtualmachineinstances/filesystemlist", "get"),
];
/// What every authenticated user has: routes of the group itself, not of a machine.
const DEFAULT: &[(&str, &str)] = &[("version", "get"), ("version", "list"), ("guestfs", "get"), ("guestfs", "list")];

/// What each role gives of `subresources.kubevirt.io`.
fn roles() -> BTreeMap<String, Given> {
    let text = std::fs::read_to_string("../deploy/base/user-roles.yaml").unwrap();
    let roles = text.split("\n---\n").filter(|each| each.contains("\nkind: ClusterRole\n"));
    let name = |role: &str| role.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap().to_owned();
    roles.map(|role| (name(role), given(role))).collect()
}

fn given(role: &str) -> Given {
    let mut lines = role.lines();
    let mut found = Given::new();
    while let Some(line) = lines.next() {
        if line.contains("subresources.kubevirt.io") {
            let (resources, verbs) = (list(lines.next().unwrap(), "resources"), list(lines.next().unwrap(), "verbs"));
            found.extend(resources.iter().flat_map(|route| verbs.iter().map(|verb| (route.clone(), verb.clone()))));
        }
    }
    found
}

/// The elements of a line such as `  verbs: [get, list]`.
fn list(line: &str, name: &str) -> Vec<String> {
    let listed = line.trim().strip_prefix(&format!("{name}: [")).unwrap().trim_end_matches(']');
    listed.split(',').map(|each| each.trim().to_owned()).collect()
}

fn served() -> Given {
    let served = ROUTES.iter().filter(|route| route.is_served());
    served.map(|route| (route.name(), route.method.verb().to_owned())).collect()
}

/// What a role has to give for all of them. API servers read one segment of a subresource, and look at the method of a request:
/// a `start` by `GET` needs `get` there, and `update` here.
fn needed() -> Given {
    let mut needed = served();
    let first = |(route, verb): &(String, String)| {
        let parts: Vec<&str> = route.splitn(3, '/').take(2).collect();
        (parts.join("/"), verb.clone())
    };
    needed.extend(served().iter().map(first));
    needed.extend(FIRST_ROUTES.iter().map(|route| (route.name(), route.method.verb().to_owned())));
    needed
}

fn owned(listed: &[(&str, &str)]) -> Given {
    listed.iter().map(|(route, verb)| ((*route).to_owned(), (*verb).to_owned())).collect()
}

#[test]
fn roles_have_the_served_routes_and_their_verbs() {
    let served = served();
    assert!(served.len() >= 5 && served.is_superset(&owned(VIEW)), "{served:?}");
    let expected = BTreeMap::from([
        ("kubevirt.io:admin".to_owned(), needed()),
        ("kubevirt.io:edit".to_owned(), needed()),
        ("kubevirt.io:view".to_owned(), owned(VIEW)),
        ("kubevirt.io:default".to_owned(), owned(DEFAULT)),
    ]);
    assert_eq!(expected, roles(), "left: subresources/src/routes.rs and this file, right: deploy/base/user-roles.yaml");
}

#[test]
fn the_documentation_names_the_served_routes() {
    let document = std::fs::read_to_string("../docs/compatibility.md").unwrap();
    let routes: String = served().iter().map(|(route, verb)| format!("- `{route}` ({verb})\n")).collect();
    assert!(
        document.contains(&format!("\n\n{routes}\n")),
        "docs/compatibility.md has no list of just these:\n{routes}"
    );
}
