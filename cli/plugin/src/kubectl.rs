//! Driving the user's kubectl. It handles clusters, credentials, proxies and exec plug-ins of clouds; none of that is linked here.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::ClusterArgs;
use crate::exit::exit_error;
use crate::failure::Failure;
use crate::operate::NAMESPACE;

/// A kubectl with the options every call of it has.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    program: OsString,
    options: Vec<OsString>,
    namespace: Option<String>,
    garboard: String,
    /// The server that the command line names instead of the kubeconfig's.
    server: Option<String>,
}

impl Kubectl {
    /// With these options of the command line.
    pub(crate) fn new(cluster: &ClusterArgs, namespace: Option<&str>) -> Self {
        let mut options = Vec::new();
        let mut pass = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                let mut option = OsString::from(format!("--{name}="));
                option.push(value);
                options.push(option);
            }
        };
        let text = |value: &Option<String>| value.as_deref().map(OsString::from);
        pass("kubeconfig", cluster.kubeconfig.clone().map(Into::into));
        pass("context", text(&cluster.context));
        pass("cluster", text(&cluster.cluster_name));
        pass("user", text(&cluster.user));
        pass("as", text(&cluster.impersonate));
        for group in &cluster.as_group {
            pass("as-group", Some(group.into()));
        }
        pass("as-uid", text(&cluster.as_uid));
        pass("server", text(&cluster.server));
        pass("token", text(&cluster.token));
        pass("certificate-authority", cluster.certificate_authority.clone().map(Into::into));
        pass("request-timeout", text(&cluster.request_timeout));
        let program = std::env::var_os("GARBOARD_KUBECTL").filter(|name| !name.is_empty());
        let garboard = cluster.garboard_namespace.clone().or_else(|| std::env::var("GARBOARD_NAMESPACE").ok());
        Self {
            program: program.unwrap_or_else(|| "kubectl".into()),
            options,
            namespace: namespace.map(str::to_owned),
            server: cluster.server.clone(),
            garboard: garboard.filter(|name| !name.is_empty()).unwrap_or_else(|| NAMESPACE.to_owned()),
        }
    }

    /// The same in the namespace of Garboard itself.
    pub(crate) fn within_garboard(&self) -> Self {
        self.within(&self.garboard)
    }

    /// The namespace Garboard is installed in.
    pub(crate) fn garboard(&self) -> &str {
        &self.garboard
    }

    /// The same in a namespace.
    pub(crate) fn within(&self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self.clone() }
    }

    /// The namespace that was chosen.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The context that every call names.
    #[cfg(unix)]
    pub(crate) fn context(&self) -> Option<&str> {
        self.option("context").filter(|name| !name.is_empty())
    }

    /// The same with the context of this moment in every call, so that `kubectl config use-context` elsewhere changes none of them.
    ///
    /// # Errors
    /// If kubectl fails. That no context is chosen is none: the command line names a server, or a pod has its own account.
    #[cfg(unix)]
    pub(crate) fn pinned(&self) -> Result<Self, Failure> {
        if self.context().is_some() {
            return Ok(self.clone());
        }
        match self.run(&["config", "current-context"]) {
            Ok(name) => Ok(self.with("context", String::from_utf8_lossy(&name).trim())),
            Err(failure) if failure.to_string().contains("current-context is not set") => Ok(self.clone()),
            Err(failure) => Err(failure),
        }
    }

    /// The same with a limit for each request (30s, 2m), unless the command line has one.
    #[cfg(unix)]
    pub(crate) fn limited(&self, limit: &str) -> Self {
        if self.option("request-timeout").is_some() { self.clone() } else { self.with("request-timeout", limit) }
    }

    #[cfg(unix)]
    fn option(&self, name: &str) -> Option<&str> {
        // The last one counts, for kubectl too.
        let mut options = self.options.iter().rev().filter_map(|option| option.to_str()?.strip_prefix("--"));
        options.find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    #[cfg(unix)]
    fn with(&self, name: &str, value: &str) -> Self {
        let mut all = self.clone();
        all.options.push(format!("--{name}={value}").into());
        all
    }

    /// A call that is not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options);
        if let Some(namespace) = &self.namespace {
            command.arg(format!("--namespace={namespace}"));
        }
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// For `map_err` of what could not even be started.
    pub(crate) fn missing(&self, error: &std::io::Error) -> Failure {
        Failure::NoProgram { program: self.program.to_string_lossy().into_owned(), reason: error.to_string() }
    }

    /// Runs a call to its end; standard output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
        judged(self.command(arguments).output().map_err(|error| self.missing(&error))?)
    }

    /// The same with something on standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
        judged(self.fed(arguments, input)?)
    }

    /// How it ended, for callers that judge it themselves.
    pub(crate) fn fed(&self, arguments: &[&str], input: &[u8]) -> Result<Output, Failure> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.missing(&error))?;
        let pipe = child.stdin.take();
        let output = std::thread::scope(|scope| {
            // kubectl may fail before it has read everything: then its own error counts.
            scope.spawn(move || pipe.map(|mut pipe| pipe.write_all(input)));
            child.wait_with_output()
        });
        output.map_err(|error| Failure::Other(error.to_string()))
    }

    /// `get … -o json`; nothing if nothing is there.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Vec<Value>, Failure> {
        let mut all = vec!["get"];
        all.extend(arguments);
        all.extend(["--ignore-not-found", "-o", "json"]);
        let bytes = self.run(&all)?;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Ok(Vec::new());
        }
        let mut value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Other(format!("`kubectl {}` did not answer in JSON: {error}", all.join(" "))))?;
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok(items),
            Some(_) | None => Ok(vec![value]),
        }
    }

    /// With what every path begins at the server of the kubeconfig: nothing at most, something at a gateway to several clusters.
    /// kubectl puts it before all paths but those of `--raw`.
    pub(crate) fn server_path(&self) -> String {
        if let Some(server) = &self.server {
            return path_of(server).to_owned();
        }
        let shown = self.run(&["config", "view", "--minify", "-o", "json"]).unwrap_or_default();
        let config: Value = serde_json::from_slice(&shown).unwrap_or_default();
        path_of(config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default()).to_owned()
    }

    /// The user that the API server sees.
    pub(crate) fn who_am_i(&self) -> Option<String> {
        let bytes = self.run(&["auth", "whoami", "-o", "json"]).ok()?;
        let review: Value = serde_json::from_slice(&bytes).ok()?;
        review["status"]["userInfo"]["username"].as_str().map(str::to_owned)
    }
}

/// The path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    after.find('/').map_or("", |at| after[at..].trim_end_matches('/'))
}

fn judged(output: Output) -> Result<Vec<u8>, Failure> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Failure::of(&String::from_utf8_lossy(&output.stderr)))
}

/// Objects as types; one that cannot be read is not what is looked for.
pub(crate) fn typed<T: DeserializeOwned>(values: Vec<Value>) -> Vec<T> {
    values.into_iter().filter_map(|value| serde_json::from_value(value).ok()).collect()
}

impl From<Failure> for crate::exit::ExitError {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code(), message: failure.to_string() }
    }
}

/// A failure with its exit code.
pub(crate) fn failed(failure: Failure) -> anyhow::Error {
    exit_error(failure.code(), failure.to_string())
}

#[cfg(test)]
#[cfg(unix)]
impl Kubectl {
    /// One that a script of a shell plays, which is written into a directory.
    pub(crate) fn played(directory: &std::path::Path, script: &str) -> Self {
        // It is read and not executed: a file that another test's child still has open for writing cannot be.
        let file = directory.join("kubectl.sh");
        std::fs::write(&file, script).unwrap();
        Self { program: "sh".into(), options: vec![file.into()], ..Self::new(&ClusterArgs::default(), None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_be_behind_a_path() {
        let table = [
            ("https://10.0.0.1:6443", ""),
            ("https://10.0.0.1:6443/", ""),
            ("https://gateway/k8s/clusters/c-1", "/k8s/clusters/c-1"),
            ("https://gateway/k8s/", "/k8s"),
            ("", ""),
        ];
        for (url, path) in table {
            assert_eq!(path_of(url), path, "{url}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_context_of_the_start_stays_although_another_one_is_chosen() {
        let directory = tempfile::tempdir().unwrap();
        let current = directory.path().join("current");
        std::fs::write(&current, "lab\n").unwrap();
        let kubectl = Kubectl::played(directory.path(), &format!("cat '{}'", current.display()));
        assert_eq!(kubectl.context(), None);
        let pinned = kubectl.pinned().unwrap();
        std::fs::write(&current, "production\n").unwrap();
        assert_eq!((pinned.context(), pinned.pinned().unwrap().context()), (Some("lab"), Some("lab")));
        assert!(pinned.within("tenant").command(&["get"]).get_args().any(|each| each == "--context=lab"));
    }

    #[test]
    #[cfg(unix)]
    fn what_was_typed_is_not_asked_for_and_no_context_is_no_failure() {
        let directory = tempfile::tempdir().unwrap();
        let failing = |text: &str| Kubectl::played(directory.path(), &format!("echo 'error: {text}' >&2; exit 1"));
        let typed = failing("asked").with("context", "lab");
        assert_eq!(typed.pinned().unwrap().context(), Some("lab"));
        assert_eq!(failing("current-context is not set").pinned().unwrap().context(), None);
        assert!(failing("no such file").pinned().is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_limit_of_the_command_line_counts() {
        let kubectl = Kubectl::new(&ClusterArgs::default(), None).limited("30s");
        assert_eq!(kubectl.option("request-timeout"), Some("30s"));
        assert_eq!(kubectl.limited("5s").option("request-timeout"), Some("30s"));
    }

    #[test]
    fn options_are_passed_on_as_one_word_each() {
        let cluster = ClusterArgs {
            context: Some("--evil".into()),
            as_group: vec!["a".into(), "b".into()],
            server: Some("https://x".into()),
            request_timeout: Some("5s".into()),
            ..ClusterArgs::default()
        };
        let command = Kubectl::new(&cluster, Some("tenant")).command(&["get", "pods"]);
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let expected = [
            "--context=--evil",
            "--as-group=a",
            "--as-group=b",
            "--server=https://x",
            "--request-timeout=5s",
            "--namespace=tenant",
            "get",
            "pods",
        ];
        assert_eq!(arguments, expected);
    }
}
