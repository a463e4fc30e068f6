//! From a method and a path to what is asked for. Pure.

use crate::group::Group;
use crate::routes::Route;

/// A method that some route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`: reads, and opens streams.
    Get,
    /// `PUT`: changes.
    Put,
}

impl Method {
    /// Reads HTTP's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "GET" => Some(Self::Get),
            "PUT" => Some(Self::Put),
            _ => None,
        }
    }

    /// The verb of roles.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "update",
        }
    }
}

/// What a route belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A VirtualMachine.
    VirtualMachine,
    /// A VirtualMachineInstance.
    VirtualMachineInstance,
    /// `expand-vm-spec`: no object, the request carries one.
    ExpandVmSpec,
}

impl Resource {
    /// The segment of the path.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::VirtualMachine => "virtualmachines",
            Self::VirtualMachineInstance => "virtualmachineinstances",
            Self::ExpandVmSpec => "expand-vm-spec",
        }
    }

    fn parse(segment: &str) -> Option<Self> {
        [Self::VirtualMachine, Self::VirtualMachineInstance].into_iter().find(|each| each.plural() == segment)
    }
}

/// A request at one of the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The group.
    pub group: Group,
    /// One of its versions.
    pub version: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The object's name; empty where the route has no object.
    pub name: &'a str,
    /// The route.
    pub route: Route,
    /// The segments that follow the subresource: port and protocol of a `portforward`, a command of QMP, or a part of the record.
    pub parameters: Vec<&'a str>,
}

/// What is asked of KubeVirt's profiler of its own components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiler {
    /// To start.
    Start,
    /// To stop.
    Stop,
    /// To answer what it has recorded.
    Dump,
}

impl Profiler {
    fn parse(segment: &str) -> Option<Self> {
        match segment {
            "start-cluster-profiler" => Some(Self::Start),
            "stop-cluster-profiler" => Some(Self::Stop),
            "dump-cluster-profiler" => Some(Self::Dump),
            _ => None,
        }
    }

    /// KubeVirt's answer where the profiler is switched off, a text with the status 403.
    #[must_use]
    pub const fn switched_off(self) -> &'static str {
        match self {
            Self::Start => "Unable to start profiler. \"ClusterProfiler\" feature gate must be enabled",
            Self::Stop => "Unable to stop profiler. \"ClusterProfiler\" feature gate must be enabled",
            Self::Dump => "Unable to dump profiler results. \"ClusterProfiler\" feature gate must be enabled",
        }
    }
}

/// What a path leads to. Everything but a call is answered without a question for rights, as KubeVirt does: it reveals
/// nothing of any object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// `/`: the list of paths.
    Root,
    /// `/apis`: the list of groups.
    Groups,
    /// `/apis/subresources.kubevirt.io`: the group.
    Group(Group),
    /// `/apis/subresources.kubevirt.io/VERSION`: its resources.
    Resources(Group, &'a str),
    /// `…/VERSION/version`: which version this is.
    Version,
    /// `…/VERSION/guestfs`: the image of libguestfs tools.
    Guestfs,
    /// `…/VERSION/start-cluster-profiler` and its like.
    Profiler(Profiler),
    /// `…/VERSION/healthz` and `/healthz`.
    Health,
    /// `/openapi/v2`.
    OpenApi2,
    /// `/openapi/v3`: the list of documents.
    OpenApi3,
    /// `/openapi/v3/apis/subresources.kubevirt.io/VERSION`: the document of a version.
    OpenApi3Of(Group, &'a str),
    /// A request at a route.
    Call(Call<'a>),
}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEndpoint {
    /// There is nothing of this path.
    NotFound,
    /// There is something, but not for this method.
    MethodNotAllowed,
}

/// Finds what a request asks for. The path is as it came, without its query; segments are not decoded, since no name of a
/// Kubernetes object needs it.
///
/// # Errors
/// Nothing is there, or not for this method.
pub fn endpoint<'a>(method: &str, path: &'a str) -> Result<Endpoint<'a>, NoEndpoint> {
    let segments: Vec<&str> = path.strip_prefix('/').ok_or(NoEndpoint::NotFound)?.split('/').collect();
    let discovery = match segments.as_slice() {
        [""] => Endpoint::Root,
        ["apis"] | ["apis", ""] => Endpoint::Groups,
        ["openapi", "v2"] => Endpoint::OpenApi2,
        ["openapi", "v3"] | ["openapi", "v3", ""] => Endpoint::OpenApi3,
        ["openapi", "v3", "apis", group, version] => {
            let group = of_version(group, version)?;
            Endpoint::OpenApi3Of(group, version)
        }
        ["healthz"] => Endpoint::Health,
        ["apis", group] | ["apis", group, ""] => Endpoint::Group(Group::parse(group).ok_or(NoEndpoint::NotFound)?),
        ["apis", group, version, rest @ ..] => {
            let group = of_version(group, version)?;
            match (rest, group) {
                ([] | [""], _) => Endpoint::Resources(group, version),
                (["namespaces", namespace, rest @ ..], _) => {
                    return call(method, Of { group, version, namespace }, rest);
                }
                (["version"], Group::KubeVirt) => Endpoint::Version,
                (["guestfs"], Group::KubeVirt) => Endpoint::Guestfs,
                (["healthz"], Group::KubeVirt) => Endpoint::Health,
                ([segment], Group::KubeVirt) => {
                    Endpoint::Profiler(Profiler::parse(segment).ok_or(NoEndpoint::NotFound)?)
                }
                _ => return Err(NoEndpoint::NotFound),
            }
        }
        _ => return Err(NoEndpoint::NotFound),
    };
    if method == "GET" { Ok(discovery) } else { Err(NoEndpoint::MethodNotAllowed) }
}

/// The group of this name, if it has the version.
fn of_version(group: &str, version: &str) -> Result<Group, NoEndpoint> {
    let group = Group::parse(group).filter(|group| group.versions().contains(&version));
    group.ok_or(NoEndpoint::NotFound)
}

/// Where a path of a route begins.
struct Of<'a> {
    group: Group,
    version: &'a str,
    namespace: &'a str,
}

fn call<'a>(method: &str, of: Of<'a>, rest: &[&'a str]) -> Result<Endpoint<'a>, NoEndpoint> {
    let Of { group, version, namespace } = of;
    let (resource, name, below) = match rest {
        [segment] if *segment == Resource::ExpandVmSpec.plural() => (Resource::ExpandVmSpec, "", &[][..]),
        [segment, name, below @ ..] if !name.is_empty() && !below.is_empty() => {
            (Resource::parse(segment).ok_or(NoEndpoint::NotFound)?, *name, below)
        }
        _ => return Err(NoEndpoint::NotFound),
    };
    if namespace.is_empty() {
        return Err(NoEndpoint::NotFound);
    }
    // The longest comes first: `vnc/screenshot` is no `vnc`.
    let mut found: Vec<(&Route, Vec<&str>)> = group
        .routes(version)
        .iter()
        .filter(|route| route.resource == resource)
        .filter_map(|route| Some((route, parameters(route, below)?)))
        .collect();
    found.sort_by_key(|(route, _)| std::cmp::Reverse(route.subresource.len()));
    let (route, parameters) = found.into_iter().next().ok_or(NoEndpoint::NotFound)?;
    if Method::parse(method) != Some(route.method) {
        return Err(NoEndpoint::MethodNotAllowed);
    }
    Ok(Endpoint::Call(Call { group, version, namespace, name, route: *route, parameters }))
}

/// What follows the subresource; `None` if the path is not of this route.
fn parameters<'a>(route: &Route, below: &[&'a str]) -> Option<Vec<&'a str>> {
    let own: Vec<&str> = route.subresource.split('/').filter(|segment| !segment.is_empty()).collect();
    let rest = below.strip_prefix(own.as_slice())?;
    let (least, most) = route.parameters();
    let is_right = (least..=most).contains(&rest.len()) && rest.iter().all(|segment| !segment.is_empty());
    is_right.then(|| rest.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::GROUP;
    use crate::routes::{Action, FIRST_ROUTES, FIRST_VERSION, OWN_ROUTES, ROUTES};

    fn name_of(method: &str, path: &str) -> Result<String, NoEndpoint> {
        let found = endpoint(method, path)?;
        let Endpoint::Call(call) = &found else { return Ok(format!("{found:?}")) };
        let name = call.route.name();
        Ok([&[name.as_str(), call.namespace, call.name], call.parameters.as_slice()].concat().join(" "))
    }

    #[test]
    fn paths_of_the_group_are_found() {
        let base = "/apis/subresources.kubevirt.io";
        let table = [
            ("/", "Root"),
            ("/apis", "Groups"),
            (base, "Group(KubeVirt)"),
            (&format!("{base}/v1"), r#"Resources(KubeVirt, "v1")"#),
            (&format!("{base}/v1alpha3/"), r#"Resources(KubeVirt, "v1alpha3")"#),
            (&format!("{base}/v1/version"), "Version"),
            (&format!("{base}/v1/healthz"), "Health"),
            (&format!("{base}/v1/guestfs"), "Guestfs"),
            (&format!("{base}/v1/start-cluster-profiler"), "Profiler(Start)"),
            (&format!("{base}/v1/stop-cluster-profiler"), "Profiler(Stop)"),
            (&format!("{base}/v1alpha3/dump-cluster-profiler"), "Profiler(Dump)"),
            ("/openapi/v2", "OpenApi2"),
            ("/openapi/v3", "OpenApi3"),
            ("/openapi/v3/apis/subresources.kubevirt.io/v1alpha3", r#"OpenApi3Of(KubeVirt, "v1alpha3")"#),
            ("/apis/subresources.garboard.dev/", "Group(Garboard)"),
            ("/apis/subresources.garboard.dev/v1", r#"Resources(Garboard, "v1")"#),
            ("/openapi/v3/apis/subresources.garboard.dev/v1", r#"OpenApi3Of(Garboard, "v1")"#),
            (
                "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/qmp-read/query-block",
                "virtualmachineinstances/qmp-read n a query-block",
            ),
            (
                "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/plan",
                "virtualmachineinstances/plan n a",
            ),
            (
                "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/logs/serial",
                "virtualmachineinstances/logs n a serial",
            ),
            (&format!("{base}/v1alpha2/namespaces/n/virtualmachines/a/start"), "virtualmachines/start n a"),
            (&format!("{base}/v1/namespaces/n/virtualmachines/a/expand-spec"), "virtualmachines/expand-spec n a"),
            (&format!("{base}/v1/namespaces/n/virtualmachineinstances/a/vnc"), "virtualmachineinstances/vnc n a"),
            (
                &format!("{base}/v1/namespaces/n/virtualmachineinstances/a/vnc/screenshot"),
                "virtualmachineinstances/vnc/screenshot n a",
            ),
            (
                &format!("{base}/v1/namespaces/n/virtualmachines/a/portforward/22/tcp"),
                "virtualmachines/portforward n a 22 tcp",
            ),
        ];
        for (path, expected) in table {
            assert_eq!(name_of("GET", path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_is_nowhere_is_not_found_and_a_wrong_method_is_reported() {
        let base = "/apis/subresources.kubevirt.io/v1/namespaces/n";
        let nowhere = [
            "",
            "apis",
            "/api",
            "/apis/kubevirt.io/v1",
            "/apis/subresources.kubevirt.io/v2",
            "/apis/subresources.kubevirt.io/v1/cluster-profiler",
            "/openapi/v3/apis/subresources.kubevirt.io/v2",
            "/openapi/v3/apis/kubevirt.io/v1",
            "/apis/subresources.garboard.dev/v1alpha3",
            "/apis/subresources.garboard.dev/v1/version",
            "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachines/a/start",
            "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/qmp-write/stop/now",
            "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/qmp",
            "/apis/subresources.garboard.dev/v1/namespaces/n/virtualmachineinstances/a/plan/facts/kvm",
            &format!("{base}/virtualmachineinstances/a/qmp-read"),
            &format!("{base}/virtualmachineinstances/a/plan"),
            "/apis/subresources.kubevirt.io/v1alpha2/namespaces/n/virtualmachines/a/restart",
            &format!("{base}/pods/a/log"),
            &format!("{base}/virtualmachines/a"),
            &format!("{base}/virtualmachines//start"),
            &format!("{base}/virtualmachines/a/start/b"),
            &format!("{base}/virtualmachines/a/pause"),
            &format!("{base}/virtualmachines/a/portforward"),
            &format!("{base}/virtualmachines/a/portforward/1/tcp/x"),
            "/apis/subresources.kubevirt.io/v1/namespaces//virtualmachines/a/start",
        ];
        for path in nowhere {
            assert_eq!(name_of("PUT", path), Err(NoEndpoint::NotFound), "{path}");
        }
        let start = format!("{base}/virtualmachines/a/start");
        assert_eq!(name_of("PUT", &start).as_deref(), Ok("virtualmachines/start n a"));
        for method in ["GET", "POST", "DELETE", "put"] {
            assert_eq!(name_of(method, &start), Err(NoEndpoint::MethodNotAllowed), "{method}");
        }
        let first = start.replace("/v1/", "/v1alpha2/");
        for (method, path) in [("PUT", "/apis"), ("PUT", "/openapi/v3"), ("PUT", first.as_str()), ("POST", &first)] {
            assert_eq!(name_of(method, path), Err(NoEndpoint::MethodNotAllowed), "{method} {path}");
        }
    }

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for (version, route) in
            ROUTES.iter().map(|route| ("v1", route)).chain(FIRST_ROUTES.iter().map(|route| (FIRST_VERSION, route)))
        {
            let method = if route.method == Method::Get { "GET" } else { "PUT" };
            let tail = match (route.resource, route.subresource) {
                (Resource::ExpandVmSpec, _) => route.resource.plural().to_owned(),
                (resource, "portforward") => format!("{}/a/portforward/80", resource.plural()),
                (resource, subresource) => format!("{}/a/{subresource}", resource.plural()),
            };
            let path = format!("/apis/{GROUP}/{version}/namespaces/n/{tail}");
            let Ok(Endpoint::Call(call)) = endpoint(method, &path) else { panic!("{path}") };
            assert_eq!(call.route, *route);
        }
    }

    #[test]
    fn a_session_of_qmp_and_a_command_differ_by_what_follows() {
        let base = format!("/apis/{}/v1/namespaces/n/virtualmachineinstances/a", Group::Garboard.name());
        for route in OWN_ROUTES {
            let (method, tail) = match (route.action, route.method) {
                (Action::QmpCommand(_), Method::Put) => ("PUT", "/stop"),
                (Action::QmpCommand(_), Method::Get) => ("GET", "/query-status"),
                _ => ("GET", ""),
            };
            let path = format!("{base}/{}{tail}", route.subresource);
            let Ok(Endpoint::Call(call)) = endpoint(method, &path) else { panic!("{method} {path}") };
            assert_eq!((call.route, call.group), (*route, Group::Garboard), "{path}");
        }
        for (method, tail) in [("GET", "qmp-write/stop"), ("PUT", "qmp-read/query-block"), ("PUT", "qmp-dangerous")] {
            assert_eq!(endpoint(method, &format!("{base}/{tail}")), Err(NoEndpoint::MethodNotAllowed), "{tail}");
        }
    }

    proptest! {
        #[test]
        fn no_path_is_too_strange(path in "[/a-z0-9.%-]{0,80}", method in "[A-Z]{0,7}") {
            let _ = endpoint(&method, &path);
        }
    }
}
