//! The paths that the page uses; there are no others. Pure.
//!
//! `expressions` has the same list for kubectl's proxy.
//!
//! What goes to the API server is put together from parts that were checked, so that no other path can be meant by it.

use crate::look::is_name;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A file of the page; it needs no token, as it is the same for everyone.
    Asset(String),
    /// A key is changed into the token; only where addresses have keys.
    Session,
    /// Who the user is, and where.
    About,
    /// How a machine is.
    Why {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A list or an object of the API server.
    Read(String),
    /// A watch of the API server, or a stream of a machine: a websocket.
    Stream(String),
    /// A subresource that changes something.
    Change(String),
}

/// A request that is none of the page's: its method and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPath(pub String);

/// Parameters that a read may have.
const READ_PARAMETERS: [&str; 5] = ["fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"];
/// Parameters of a watch.
const WATCH_PARAMETERS: [&str; 4] = ["fieldSelector", "resourceVersion", "watch", "allowWatchBookmarks"];
/// Parameters of console and screen.
const STREAM_PARAMETERS: [&str; 2] = ["position", "preserveSession"];
/// What may be asked of a machine, and of an instance.
const OF_MACHINES: [&str; 3] = ["start", "stop", "restart"];
const OF_INSTANCES: [&str; 4] = ["pause", "reset", "softreboot", "unpause"];
const STREAMS: [&str; 2] = ["console", "vnc"];

/// What a request is for.
///
/// # Errors
/// If it is none of the page's.
pub fn route(method: &str, target: &str, is_upgrade: bool) -> Result<Route, UnknownPath> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let unknown = || UnknownPath(format!("{method} {path}"));
    let parts: Vec<&str> = path.strip_prefix('/').ok_or_else(unknown)?.split('/').collect();
    let found = match (method, is_upgrade) {
        ("GET", false) => read(&parts, path, query),
        ("GET", true) => stream(&parts, path, query),
        ("PUT", false) if query.is_empty() => change(&parts, path),
        ("POST", false) if target == "/session" => Some(Route::Session),
        _ => None,
    };
    found.ok_or_else(unknown)
}

fn read(parts: &[&str], path: &str, query: &str) -> Option<Route> {
    match parts {
        [""] => Some(Route::Asset("index.html".to_owned())),
        ["page", rest @ ..] if !rest.is_empty() && query.is_empty() => Some(Route::Asset(rest.join("/"))),
        ["about"] if query.is_empty() => Some(Route::About),
        ["why", namespace, name] if query.is_empty() && is_name(namespace) && is_name(name) => {
            Some(Route::Why { namespace: (*namespace).to_owned(), name: (*name).to_owned() })
        }
        _ if is_collection(parts) => with_query(path, query, &READ_PARAMETERS).map(Route::Read),
        _ => None,
    }
}

fn stream(parts: &[&str], path: &str, query: &str) -> Option<Route> {
    if is_collection(parts) && query.split('&').any(|each| each == "watch=true") {
        return with_query(path, query, &WATCH_PARAMETERS).map(Route::Stream);
    }
    let of_instance = subresource(parts, "virtualmachineinstances", &STREAMS);
    if of_instance { with_query(path, query, &STREAM_PARAMETERS).map(Route::Stream) } else { None }
}

fn change(parts: &[&str], path: &str) -> Option<Route> {
    let is_known = subresource(parts, "virtualmachines", &OF_MACHINES)
        || subresource(parts, "virtualmachineinstances", &OF_INSTANCES);
    is_known.then(|| Route::Change(path.to_owned()))
}

/// What goes to the API server, for kubectl's proxy: regular expressions of Go for whole paths, with a comma between two of them.
///
/// It compares path and method each alone. So `PUT` gets through to collections too, where Kubernetes has none; to an object by its name
/// no method does.
pub(crate) fn expressions() -> String {
    let of = format!(r"^/apis/subresources\.kubevirt\.io/v1/namespaces/{NAME}");
    let of_instances = [OF_INSTANCES.as_slice(), &STREAMS].concat().join("|");
    [
        format!(r"^/apis/kubevirt\.io/v1/(namespaces/{NAME}/)?(virtualmachines|virtualmachineinstances)$"),
        format!("^/api/v1/namespaces(/{NAME}/events)?$"),
        format!("{of}/virtualmachines/{NAME}/({})$", OF_MACHINES.join("|")),
        format!("{of}/virtualmachineinstances/{NAME}/({of_instances})$"),
    ]
    .join(",")
}

/// A name, in an expression.
const NAME: &str = "[a-z0-9][a-z0-9.-]*";

/// Machines, instances and events: of all namespaces or of one; and namespaces.
fn is_collection(parts: &[&str]) -> bool {
    match parts {
        ["apis", "kubevirt.io", "v1", kind] => is_kind(kind),
        ["apis", "kubevirt.io", "v1", "namespaces", namespace, kind] => is_name(namespace) && is_kind(kind),
        ["api", "v1", "namespaces"] => true,
        ["api", "v1", "namespaces", namespace, "events"] => is_name(namespace),
        _ => false,
    }
}

fn is_kind(text: &str) -> bool {
    matches!(text, "virtualmachines" | "virtualmachineinstances")
}

fn subresource(parts: &[&str], wanted: &str, verbs: &[&str]) -> bool {
    match parts {
        ["apis", "subresources.kubevirt.io", "v1", "namespaces", namespace, kind, name, verb] => {
            *kind == wanted && is_name(namespace) && is_name(name) && verbs.contains(verb)
        }
        _ => false,
    }
}

/// Path and query, if each parameter is allowed and has a harmless value.
fn with_query(path: &str, query: &str, allowed: &[&str]) -> Option<String> {
    if query.is_empty() {
        return Some(path.to_owned());
    }
    let is_allowed = |one: u8| one.is_ascii_alphanumeric() || b"-._~%=".contains(&one);
    let is_good = |each: &str| {
        each.split_once('=').is_some_and(|(name, value)| allowed.contains(&name) && value.bytes().all(is_allowed))
    };
    query.split('&').all(is_good).then(|| format!("{path}?{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
    const OF_TENANT: &str = "/apis/subresources.kubevirt.io/v1/namespaces/tenant";

    #[test]
    fn what_the_page_uses_is_let_through() {
        let route = |method, target: &str, is_upgrade| route(method, target, is_upgrade).unwrap();
        assert_eq!(route("GET", "/", false), Route::Asset("index.html".into()));
        assert_eq!(
            route("GET", "/page/vendor/xterm/lib/xterm.mjs", false),
            Route::Asset("vendor/xterm/lib/xterm.mjs".into())
        );
        assert_eq!(route("POST", "/session", false), Route::Session);
        let why = Route::Why { namespace: "tenant".into(), name: "web.1".into() };
        assert_eq!(route("GET", "/why/tenant/web.1", false), why);
        let list = format!("{MACHINES}?limit=500");
        assert_eq!(route("GET", &list, false), Route::Read(list.clone()));
        let watch = format!("{MACHINES}?watch=true&resourceVersion=12&allowWatchBookmarks=true");
        assert_eq!(route("GET", &watch, true), Route::Stream(watch.clone()));
        let events = "/api/v1/namespaces/tenant/events?fieldSelector=involvedObject.name%3Dweb";
        assert_eq!(route("GET", events, false), Route::Read(events.into()));
        for verb in OF_MACHINES {
            let path = format!("{OF_TENANT}/virtualmachines/web/{verb}");
            assert_eq!(route("PUT", &path, false), Route::Change(path.clone()));
        }
        for verb in OF_INSTANCES {
            let path = format!("{OF_TENANT}/virtualmachineinstances/web/{verb}");
            assert_eq!(route("PUT", &path, false), Route::Change(path.clone()));
        }
        let console =
            format!("{OF_TENANT}/virtualmachineinstances/web/console?preserveSession=true&position=5e1f.1007");
        assert_eq!(route("GET", &console, true), Route::Stream(console.clone()));
    }

    #[test]
    fn nothing_else_is() {
        let table = [
            ("GET", "/api/v1/secrets".to_owned(), false),
            ("GET", "/api/v1/namespaces/tenant/secrets".to_owned(), false),
            ("GET", "/api/v1/namespaces/tenant/pods".to_owned(), false),
            ("GET", "/api/v1/namespaces/../secrets".to_owned(), false),
            ("GET", "/apis/kubevirt.io/v1/namespaces/%2e%2e/virtualmachines".to_owned(), false),
            ("GET", "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/../../secrets".to_owned(), false),
            ("GET", "//api/v1/namespaces".to_owned(), false),
            ("GET", "http://evil.example/api/v1/namespaces".to_owned(), false),
            ("DELETE", MACHINES.to_owned(), false),
            ("POST", MACHINES.to_owned(), false),
            ("PUT", format!("{MACHINES}/web"), false),
            ("PATCH", format!("{OF_TENANT}/virtualmachines/web/start"), false),
            // A list that goes on is no read: it would hold one of the browser's few connections.
            ("GET", format!("{MACHINES}?watch=true"), false),
            ("GET", MACHINES.to_owned(), true),
            ("GET", format!("{MACHINES}?dryRun=All"), false),
            ("GET", format!("{MACHINES}?limit=5#x"), false),
            ("GET", format!("{MACHINES}?limit"), false),
            // Reads of the first design, which start a machine.
            ("GET", "/apis/subresources.kubevirt.io/v1alpha2/namespaces/a/virtualmachines/b/start".to_owned(), false),
            ("GET", format!("{OF_TENANT}/virtualmachines/web/start"), false),
            ("PUT", format!("{OF_TENANT}/virtualmachines/web/start?x=y"), false),
            ("PUT", format!("{OF_TENANT}/virtualmachines/web/addvolume"), false),
            ("PUT", format!("{OF_TENANT}/virtualmachineinstances/web/start"), false),
            ("GET", format!("{OF_TENANT}/virtualmachineinstances/web/portforward"), true),
            ("GET", format!("{OF_TENANT}/virtualmachineinstances/web/console"), false),
            ("GET", "/why/tenant/--all".to_owned(), false),
            ("GET", "/why/tenant/a/b".to_owned(), false),
            ("POST", "/session?x=y".to_owned(), false),
            ("CONNECT", "127.0.0.1:22".to_owned(), false),
        ];
        for (method, target, is_upgrade) in table {
            let found = route(method, &target, is_upgrade);
            assert!(found.is_err(), "{method} {target}: {found:?}");
        }
    }

    /// The paths of a list that the expressions let through, by grep: what they use is the same in Go.
    fn let_through(paths: &[String]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("paths");
        std::fs::write(&file, paths.join("\n")).unwrap();
        let mut grep = std::process::Command::new("grep");
        grep.env("LC_ALL", "C").arg("-E");
        for expression in expressions().split(',') {
            grep.args(["-e", expression]);
        }
        let output = grep.arg(&file).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn kubectl_lets_the_same_paths_through() {
        let of = |kind: &str, verb: &str| format!("{OF_TENANT}/{kind}/web.1/{verb}");
        let mut paths: Vec<String> = OF_MACHINES.iter().map(|verb| of("virtualmachines", verb)).collect();
        paths.extend(OF_INSTANCES.iter().chain(&STREAMS).map(|verb| of("virtualmachineinstances", verb)));
        for kind in ["virtualmachines", "virtualmachineinstances"] {
            paths.extend(["", "namespaces/tenant/"].map(|place| format!("/apis/kubevirt.io/v1/{place}{kind}")));
        }
        paths.extend(["/api/v1/namespaces", "/api/v1/namespaces/tenant/events"].map(str::to_owned));
        assert_eq!(let_through(&paths), paths);
    }

    #[test]
    fn kubectl_lets_no_other_path_through() {
        let paths = [
            "/api/v1/secrets",
            "/api/v1/namespaces/tenant",
            "/api/v1/namespaces/tenant/secrets",
            "/api/v1/namespaces/tenant/secrets/events",
            "/api/v1/namespaces/../secrets",
            "/api/v1/namespaces/tenant/pods/web/exec",
            "/api/v1/namespaces/tenant/pods/web/portforward",
            "/x/api/v1/namespaces",
            "/apis/kubevirt.io/v1/namespaces/tenant/virtualmachines/web",
            "/apis/kubevirtxio/v1/virtualmachines",
            "/apis/kubevirt.io/v1/namespaces/tenant/virtualmachines/../secrets",
            "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachines/web/addvolume",
            "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachineinstances/web/portforward/22",
            "/apis/subresources.kubevirt.io/v1/namespaces/tenant/virtualmachineinstances/web/start",
        ];
        assert_eq!(let_through(&paths.map(str::to_owned)), Vec::<String>::new());
    }
}
