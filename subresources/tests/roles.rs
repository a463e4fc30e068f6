//! The roles of users (`deploy/base/user-roles.yaml`) have the routes of KubeVirt's roles with their verbs, refused ones as well, and
//! those of our own group have roles of their own;
//! `docs/compatibility.md` has every route that is served, and no other.

#![allow(clippy::unwrap_used, reason = "the whole file is a test")]

use std::collections::{BTreeMap, BTreeSet};

use garboard_subresources::group::Group;
use garboard_subresources::route::Method;
use garboard_subresources::routes::{FIRST_ROUTES, OWN_ROUTES, ROUTES};

/// Routes with their verbs.
type Given = BTreeSet<(String, String)>;

/// What the roles `admin` and `edit` do not have: `migrate` has a role of its own, and KubeVirt's roles (v1.7) name none of the
/// others. Where KubeVirt has a route in its roles, these have it here, too, even if it is refused.
const NOT_OF_EDITORS: &[&str] = &[
    "virtualmachines/migrate",
    "virtualmachines/addinterface",
    "virtualmachines/removeinterface",
    "virtualmachines/removememorydump",
    "virtualmachineinstances/addinterface",
    "virtualmachineinstances/removeinterface",
    "virtualmachineinstances/backup",
    "virtualmachineinstances/redefine-checkpoint",
    "virtualmachineinstances/vsock",
];
/// What the role `view` has: routes that change nothing.
const VIEW: &[(&str, Method)] = &[
    ("virtualmachines/expand-spec", Method::Get),
    ("virtualmachines/objectgraph", Method::Get),
    ("expand-vm-spec", Method::Put),
    ("virtualmachineinstances/guestosinfo", Method::Get),
    ("virtualmachineinstances/userlist", Method::Get),
    ("virtualmachineinstances/filesystemlist", Method::Get),
    ("virtualmachineinstances/objectgraph", Method::Get),
    ("virtualmachineinstances/sev/fetchcertchain", Method::Get),
    ("virtualmachineinstances/sev/querylaunchmeasurement", Method::Get),
];
/// What the role `migrate` has.
const MIGRATE: &[(&str, Method)] = &[("virtualmachines/migrate", Method::Put)];
/// What every authenticated user has: routes of the group itself, not of a machine.
const DEFAULT: &[(&str, &str)] = &[("version", "get"), ("version", "list"), ("guestfs", "get"), ("guestfs", "list")];

/// What each role gives of a group.
fn roles(group: Group) -> BTreeMap<String, Given> {
    let text = std::fs::read_to_string("../deploy/base/user-roles.yaml").unwrap();
    let roles = text.split("\n---\n").filter(|each| each.contains("\nkind: ClusterRole\n"));
    let name = |role: &str| role.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap().to_owned();
    roles.map(|role| (name(role), given(role, group))).collect()
}

fn given(role: &str, group: Group) -> Given {
    let head = format!("- apiGroups: [{}]", group.name());
    let mut lines = role.lines();
    let mut found = Given::new();
    while let Some(line) = lines.next() {
        if line == head {
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

/// Every route with the verb that API servers ask for: that of the method.
fn every() -> Given {
    ROUTES.iter().map(|route| (route.name(), route.method.verb().to_owned())).collect()
}

fn served() -> Given {
    let served = ROUTES.iter().filter(|route| route.is_served());
    served.map(|route| (route.name(), route.method.verb().to_owned())).collect()
}

fn owned(listed: &[(&str, Method)]) -> Given {
    listed.iter().map(|(route, method)| ((*route).to_owned(), method.verb().to_owned())).collect()
}

/// What a role has to give for these routes: API servers read one segment of a subresource.
fn needed(routes: Given) -> Given {
    let first = |(route, verb): &(String, String)| {
        let parts: Vec<&str> = route.splitn(3, '/').take(2).collect();
        (parts.join("/"), verb.clone())
    };
    let firsts: Given = routes.iter().map(first).collect();
    routes.into_iter().chain(firsts).collect()
}

fn of_editors() -> Given {
    needed(every().into_iter().filter(|(route, _)| !NOT_OF_EDITORS.contains(&route.as_str())).collect())
}

/// The GETs of the first version, whose verb is not that of the same subresources in the others.
fn by_get() -> Given {
    FIRST_ROUTES.iter().map(|route| (route.name(), route.method.verb().to_owned())).collect()
}

#[test]
fn roles_have_the_routes_of_kubevirts_and_their_verbs() {
    let default = DEFAULT.iter().map(|(route, verb)| ((*route).to_owned(), (*verb).to_owned())).collect();
    let expected = BTreeMap::from([
        ("kubevirt.io:admin".to_owned(), of_editors()),
        ("kubevirt.io:edit".to_owned(), of_editors()),
        ("kubevirt.io:view".to_owned(), needed(owned(VIEW))),
        ("kubevirt.io:migrate".to_owned(), needed(owned(MIGRATE))),
        ("kubevirt.io:default".to_owned(), default),
        ("instancetype.kubevirt.io:view".to_owned(), Given::new()),
        ("garboard-start-by-get".to_owned(), by_get()),
        ("garboard-qmp-read".to_owned(), Given::new()),
        ("garboard-qmp-write".to_owned(), Given::new()),
        ("garboard-qmp-dangerous".to_owned(), Given::new()),
        ("garboard-inspect".to_owned(), Given::new()),
        ("garboard-runs".to_owned(), Given::new()),
    ]);
    assert_eq!(
        expected,
        roles(Group::KubeVirt),
        "left: subresources/src/routes.rs and this file, right: deploy/base/user-roles.yaml"
    );
}

/// Each level of QMP has a role, which gives it alone: each verb by which it is asked, and `get` of what is opened with a websocket. So has the record
/// of what runs.
#[test]
fn each_level_of_qmp_and_the_record_have_a_role_of_their_own() {
    let of = |subresources: &[&str]| -> Given {
        let wanted = |route: &str| subresources.iter().any(|each| route == format!("virtualmachineinstances/{each}"));
        let routes = OWN_ROUTES.iter().filter(|route| wanted(&route.name()));
        routes.map(|route| (route.name(), route.method.verb().to_owned())).collect()
    };
    let given: BTreeMap<String, Given> =
        roles(Group::Garboard).into_iter().filter(|(_, given)| !given.is_empty()).collect();
    let expected = BTreeMap::from([
        ("garboard-qmp-read".to_owned(), of(&["qmp-read", "screendump"])),
        ("garboard-qmp-write".to_owned(), of(&["qmp-write"])),
        ("garboard-qmp-dangerous".to_owned(), of(&["qmp-dangerous"])),
        ("garboard-inspect".to_owned(), of(&["plan", "logs"])),
    ]);
    assert_eq!(expected, given, "left: subresources/src/routes.rs and this file, right: deploy/base/user-roles.yaml");
}

#[test]
fn what_roles_have_apart_are_routes() {
    let every = every();
    assert!(every.is_superset(&owned(VIEW)) && every.is_superset(&owned(MIGRATE)), "{every:?}");
    for route in NOT_OF_EDITORS {
        assert!(every.iter().any(|(name, _)| name == route), "{route}");
    }
    assert!(served().len() >= 5, "{:?}", served());
    // No right to read is one to start or stop a machine.
    assert!(of_editors().is_disjoint(&by_get()));
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
