//! `kubectl garboard cluster install`.

use std::time::Duration;

use serde_json::Value;

use super::args::InstallArgs;
use super::catalogue::Catalogue;
use super::emulation::{EmulationSetting, kubevirts};
use super::gather::gather;
use super::manifest::{self, DashboardOptions, InstallOptions, NEVER, Object, PART_OF, REGISTRY, VERSION};
use super::report::{self, Report};
use super::{CONTROLLER, CONTROLLER_SELECTOR, DASHBOARD, NAMESPACE, Progress, emulates, follow};
use crate::exit::{self, FAILED, REFUSED, exit_error};
use crate::failure::Failure;
use crate::kubectl::{Kubectl, failed};
use crate::output::{note, out, outln};

/// The oldest Kubernetes: native sidecars, image volumes, policies and tokens with the name of a node.
const OLDEST_MINOR: u32 = 33;

/// The pull policy of images in a registry that was chosen.
const IF_NOT_PRESENT: &str = "IfNotPresent";

/// `kubectl garboard cluster install`.
pub(super) fn run(kubectl: &Kubectl, args: &InstallArgs) -> anyhow::Result<u8> {
    if args.print {
        let dashboard = chosen_dashboard(args, None);
        let choice = InstallOptions { namespace: kubectl.garboard().to_owned(), dashboard, ..choose(args, &[]) };
        let mut objects = manifest::objects(&choice)?;
        if args.common_instancetypes == Some(true) {
            objects.extend(manifest::catalogue()?);
        }
        out!("{}", manifest::text(objects.iter()))?;
        return Ok(exit::OK);
    }
    let version = check_version(kubectl)?;
    let namespace = kubectl.garboard().to_owned();
    let planned = |dashboard: Option<DashboardOptions>| {
        manifest::objects(&InstallOptions { namespace: namespace.clone(), dashboard, ..InstallOptions::plain() })
    };
    // Before anything is read: who may not install is refused with what they may not do, not with what they may not see.
    check_rights(kubectl, &planned(chosen_dashboard(args, None))?, "patch")?;
    let dashboards = kubectl.within_garboard().get(&["deployment", DASHBOARD]).map_err(failed)?;
    let dashboard = chosen_dashboard(args, dashboards.first());
    let plain = planned(dashboard.clone())?;
    if !dashboards.is_empty() {
        check_rights(kubectl, &plain, "patch")?;
    }
    check_foreign(kubectl, &plain)?;
    let present = kubectl.within_garboard().get(&["deployment", CONTROLLER]).map_err(failed)?;
    let settings = kubevirts(kubectl).map_err(failed)?;
    let setting = EmulationSetting::of(&present, &settings);
    let catalogue = Catalogue::look(kubectl, &settings).map_err(failed)?;
    let common = args.common_instancetypes;
    if let Some(problem) = setting.problem(args.emulation).or_else(|| catalogue.problem(common)) {
        return Err(exit_error(REFUSED, problem));
    }
    let sizes = if catalogue.is_wanted(common) { manifest::catalogue()? } else { Vec::new() };
    check_rights(kubectl, &sizes, "patch")?;
    check_elsewhere(kubectl)?;
    let choice = InstallOptions { namespace: namespace.clone(), dashboard, ..choose(args, &present) };
    let objects = manifest::objects(&choice)?;
    let emulation = if setting.object.is_some() { setting.allowed } else { choice.emulation };
    note!("Kubernetes {version}: installing Garboard {VERSION}{}", if emulation { " with emulation" } else { "" });
    let (first, then): (Vec<&Object>, Vec<&Object>) =
        objects.iter().partition(|object| object.is_definition() || object.kind == "Namespace");
    // Objects of a kind cannot be taken before the kind is.
    apply(kubectl, &first, args.force_conflicts)?;
    establish(kubectl, &first, args.timeout)?;
    apply(kubectl, &then, args.force_conflicts)?;
    if choice.dashboard.is_none() && !dashboards.is_empty() {
        remove_dashboard(kubectl, &choice.namespace)?;
    }
    wait(kubectl, args.timeout)?;
    // The webhooks judge them: not before these answer.
    if !sizes.is_empty() {
        apply(kubectl, &sizes.iter().collect::<Vec<_>>(), args.force_conflicts)?;
    }
    catalogue.remove_but(kubectl, &sizes)?;
    outln!("Garboard {VERSION} works; `kubectl garboard cluster status` shows what runs where")?;
    Ok(exit::OK)
}

/// The option, else what is installed, else the manifest's value.
fn choose(args: &InstallArgs, present: &[Value]) -> InstallOptions {
    let image = |own: &Option<String>, name: &str| own.clone().unwrap_or_else(|| image_of(name, args, present));
    InstallOptions {
        controller: image(&args.controller_image, "controller"),
        node: image(&args.node_image, "node"),
        launcher: image(&args.launcher_image, "launcher"),
        pull_policy: pull_policy(args, present),
        namespace: NAMESPACE.to_owned(),
        emulation: args.emulation.unwrap_or_else(|| present.iter().any(emulates)),
        dashboard: None,
    }
}

/// The dashboard as the options say, else as it is installed; nothing if it is not wanted. Its own options want it.
fn chosen_dashboard(args: &InstallArgs, present: Option<&Value>) -> Option<DashboardOptions> {
    let is_named = !args.dashboard_hosts.is_empty() || args.dashboard_tls_secret.is_some();
    if !args.dashboard.unwrap_or(is_named || present.is_some()) {
        return None;
    }
    let known = present.map(DashboardOptions::of).unwrap_or_default();
    let hosts = if args.dashboard_hosts.is_empty() { known.hosts } else { args.dashboard_hosts.clone() };
    let secret = args.dashboard_tls_secret.clone().map(|name| Some(name).filter(|name| !name.is_empty()));
    Some(DashboardOptions { hosts, tls_secret: secret.unwrap_or(known.tls_secret) })
}

/// One that is there and not wanted.
fn remove_dashboard(kubectl: &Kubectl, namespace: &str) -> anyhow::Result<()> {
    let input = manifest::text(manifest::of_dashboard(namespace)?.iter());
    kubectl.feed(&["delete", "--ignore-not-found", "-f", "-"], input.as_bytes()).map_err(failed)?;
    note!("the dashboard is removed");
    Ok(())
}

/// An image by registry, tag and digest. An upgrade takes its images from where the present ones are.
fn image_of(name: &str, args: &InstallArgs, present: &[Value]) -> String {
    let registry = args.image_registry.as_deref().map(|registry| registry.trim_end_matches('/'));
    let registry = registry.or_else(|| registry_of(present)).unwrap_or(REGISTRY);
    let tag = args.image_tag.as_deref().unwrap_or(VERSION);
    let digest = args.image_digests.iter().rev().find(|(of, _)| of == name);
    let digest = digest.map(|(_, digest)| format!("@{digest}")).unwrap_or_default();
    format!("{registry}/garboard/{name}:{tag}{digest}")
}

/// Where the present controller's image is from.
fn registry_of(present: &[Value]) -> Option<&str> {
    let image = controller(present)?["image"].as_str()?;
    image.split_once("/garboard/controller").map(|(registry, _)| registry)
}

/// With a registry, images are pulled from it; without one they are loaded, and no registry is asked.
fn pull_policy(args: &InstallArgs, present: &[Value]) -> String {
    let is_chosen = args.image_registry.is_some()
        || [&args.controller_image, &args.node_image, &args.launcher_image].iter().any(|image| image.is_some());
    let known = registry_of(present).and(controller(present)).and_then(|known| known["imagePullPolicy"].as_str());
    let usual = if is_chosen { IF_NOT_PRESENT } else { known.unwrap_or(NEVER) };
    args.image_pull_policy.as_deref().unwrap_or(usual).to_owned()
}

fn controller(present: &[Value]) -> Option<&Value> {
    present.iter().map(|each| &each["spec"]["template"]["spec"]["containers"][0]).find(|each| each.is_object())
}

fn check_version(kubectl: &Kubectl) -> anyhow::Result<String> {
    let bytes = kubectl.run(&["version", "-o", "json"]).map_err(failed)?;
    let answer: Value = serde_json::from_slice(&bytes)?;
    let server = &answer["serverVersion"];
    let number = |key: &str| {
        let digits: String =
            server[key].as_str().unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    };
    let version = server["gitVersion"].as_str().unwrap_or("of an unknown version").to_owned();
    if number("major") == 1 && number("minor") < OLDEST_MINOR {
        let text = format!("Garboard needs Kubernetes 1.{OLDEST_MINOR} or newer, and this cluster is {version}");
        return Err(exit_error(REFUSED, text));
    }
    Ok(version)
}

/// A cluster has one installation: two would write to the same machines.
fn check_elsewhere(kubectl: &Kubectl) -> anyhow::Result<()> {
    let found = kubectl.get(&["deployments", "-A", "-l", CONTROLLER_SELECTOR]).map_err(failed)?;
    match elsewhere(&found, kubectl.garboard()) {
        Some(message) => Err(exit_error(REFUSED, message)),
        None => Ok(()),
    }
}

fn elsewhere(controllers: &[Value], namespace: &str) -> Option<String> {
    let namespaces = controllers.iter().filter_map(|each| each["metadata"]["namespace"].as_str());
    let other = namespaces.into_iter().find(|found| *found != namespace)?;
    Some(format!(
        "Garboard is installed in the namespace {other}: install there with --garboard-namespace={other}, or uninstall it first"
    ))
}

/// Two controllers of one kind would both write to every machine.
fn check_foreign(kubectl: &Kubectl, objects: &[Object]) -> anyhow::Result<()> {
    let mut asked = vec!["crd".to_owned()];
    asked.extend(objects.iter().filter(|object| object.is_definition()).map(|object| object.name.clone()));
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let definitions = kubectl.get(&asked).map_err(failed)?;
    let operators = kubectl
        .get(&["deployments", "-A", "-l", "kubevirt.io in (virt-operator, virt-controller)"])
        .unwrap_or_default();
    match foreign(&definitions, &operators) {
        Some(message) => Err(exit_error(REFUSED, message)),
        None => Ok(()),
    }
}

fn foreign(definitions: &[Value], operators: &[Value]) -> Option<String> {
    let text = |object: &Value, key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    if let Some(operator) = operators.first() {
        let (namespace, name) = (text(operator, "namespace"), text(operator, "name"));
        return Some(format!(
            "KubeVirt itself is installed here (deployment {name} in namespace {namespace}), and Garboard takes its place: \
             remove it first, or choose another cluster"
        ));
    }
    let other = definitions.iter().find(|each| each["metadata"]["labels"][PART_OF.0] != PART_OF.1)?;
    Some(format!(
        "the definition {} belongs to another installation (it has no label {}={}): remove that, or choose another cluster",
        text(other, "name"),
        PART_OF.0,
        PART_OF.1
    ))
}

/// Every right at once, so that it does not end half way.
pub(super) fn check_rights(kubectl: &Kubectl, objects: &[Object], verb: &str) -> anyhow::Result<()> {
    let mut asked: Vec<(String, Option<String>)> =
        objects.iter().map(|object| (object.resource(), object.namespace.clone())).collect();
    asked.sort();
    asked.dedup();
    let missing: Vec<String> = std::thread::scope(|scope| {
        let questions: Vec<_> = asked
            .iter()
            .map(|(resource, namespace)| scope.spawn(move || may(kubectl, verb, resource, namespace.as_deref())))
            .collect();
        let answers = questions.into_iter().map(|one| one.join().unwrap_or(Ok(true)));
        asked
            .iter()
            .zip(answers)
            .filter(|(_, answer)| matches!(answer, Ok(false)))
            .map(|((what, _), _)| what.clone())
            .collect()
    });
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "you may not {verb} {}; this needs the rights of a cluster's administrator: choose another --context or --user",
        missing.join(", ")
    );
    Err(exit_error(REFUSED, text))
}

/// `kubectl auth can-i` answers with its exit code, and `no` on standard output.
fn may(kubectl: &Kubectl, verb: &str, resource: &str, namespace: Option<&str>) -> Result<bool, Failure> {
    let kubectl = namespace.map_or_else(|| kubectl.clone(), |namespace| kubectl.within(namespace));
    let output =
        kubectl.command(&["auth", "can-i", verb, resource]).output().map_err(|error| kubectl.missing(&error))?;
    Ok(!String::from_utf8_lossy(&output.stdout).trim_start().starts_with("no"))
}

fn apply(kubectl: &Kubectl, objects: &[&Object], force: bool) -> anyhow::Result<()> {
    let mut arguments = vec!["apply", "--server-side", "-f", "-"];
    arguments.extend(force.then_some("--force-conflicts"));
    let input = manifest::text(objects.iter().copied());
    match kubectl.feed(&arguments, input.as_bytes()) {
        Ok(_) => {
            note!("applied {} objects", objects.len());
            Ok(())
        }
        Err(failure @ Failure::Conflict(_)) => {
            Err(exit_error(failure.code(), format!("{failure}; --force-conflicts takes it over")))
        }
        Err(failure) => Err(failed(failure)),
    }
}

fn establish(kubectl: &Kubectl, objects: &[&Object], timeout: u64) -> anyhow::Result<()> {
    let names: Vec<String> =
        objects.iter().filter(|object| object.is_definition()).map(|object| format!("crd/{}", object.name)).collect();
    let timeout = format!("--timeout={timeout}s");
    let mut arguments = vec!["wait", "--for=condition=Established", timeout.as_str()];
    arguments.extend(names.iter().map(String::as_str));
    kubectl.run(&arguments).map_err(failed)?;
    note!("{} definitions are established", names.len());
    Ok(())
}

/// Until both parts are as they should be and nodes take machines.
fn wait(kubectl: &Kubectl, timeout: u64) -> anyhow::Result<()> {
    let mut last: Option<Report> = None;
    let overdue = follow(Duration::from_secs(timeout), || {
        let report = report::judge(&gather(kubectl)?, jiff::Timestamp::now());
        let line = report.progress();
        let done = report.is_up();
        last = Some(report);
        Ok(if done { Progress::Done(line) } else { Progress::Waiting(line) })
    })?;
    match overdue {
        None => Ok(()),
        Some(line) => {
            let troubles = last.map(|report| report.troubles().join("\n  ")).unwrap_or_default();
            let text = format!("it is installed, but does not work after {timeout} s ({line}):\n  {troubles}");
            Err(exit_error(FAILED, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: InstallArgs,
    }

    fn args(arguments: &[&str]) -> InstallArgs {
        Line::parse_from(["install"].iter().chain(arguments)).args
    }

    fn present(image: &str, arguments: &[&str]) -> Vec<Value> {
        let container = json!({"image": image, "imagePullPolicy": "Never", "args": arguments});
        vec![json!({"spec": {"template": {"spec": {"containers": [container]}}}})]
    }

    #[test]
    fn options_that_are_not_given_stay_as_they_are() {
        let fresh = choose(&args(&[]), &[]);
        assert_eq!(fresh, InstallOptions::plain());
        let upgrade = choose(&args(&[]), &present("r.example/x/garboard/controller:0.0.9", &["--emulation"]));
        assert_eq!(upgrade.launcher, format!("r.example/x/garboard/launcher:{VERSION}"));
        assert_eq!(upgrade.pull_policy, "Never", "as it is written there");
        assert!(upgrade.emulation);
        let back = choose(&args(&["--emulation=false"]), &present("garboard/controller:1", &["--emulation"]));
        assert!(!back.emulation);
        assert_eq!(back.controller, InstallOptions::plain().controller);
    }

    #[test]
    fn the_dashboard_stays_as_it_is_until_an_option_says_otherwise() {
        assert_eq!(chosen_dashboard(&args(&[]), None), None);
        assert_eq!(chosen_dashboard(&args(&["--dashboard"]), None), Some(DashboardOptions::default()));
        let container = json!({"args": ["--certificate=/x", "--host=a.example"]});
        let volumes = json!([{"secret": {"secretName": "mine"}}]);
        let present = json!({"spec": {"template": {"spec": {"containers": [container], "volumes": volumes}}}});
        let known = DashboardOptions { hosts: vec!["a.example".into()], tls_secret: Some("mine".into()) };
        assert_eq!(chosen_dashboard(&args(&[]), Some(&present)), Some(known.clone()));
        assert_eq!(chosen_dashboard(&args(&["--dashboard=false"]), Some(&present)), None);
        let other = args(&["--dashboard-host=b.example", "--dashboard-host=c.example", "--dashboard-tls-secret="]);
        let expected = DashboardOptions { hosts: vec!["b.example".into(), "c.example".into()], tls_secret: None };
        assert_eq!(chosen_dashboard(&other, Some(&present)), Some(expected.clone()));
        assert_eq!(chosen_dashboard(&other, None), Some(expected));
        let long = "a".repeat(254);
        for wrong in ["", "https://a.example", "a.example:443", "a example", "a; script-src *", long.as_str()] {
            let option = format!("--dashboard-host={wrong}");
            assert!(Line::try_parse_from(["install", option.as_str()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_registry_is_for_all_images_and_an_image_for_itself() {
        let choice = choose(&args(&["--image-registry", "r.example/", "--node-image=n:1", "--emulation"]), &[]);
        assert_eq!(choice.controller, format!("r.example/garboard/controller:{VERSION}"));
        assert_eq!((choice.node.as_str(), choice.emulation), ("n:1", true));
        assert_eq!(choice.pull_policy, "IfNotPresent");
    }

    #[test]
    fn an_installation_chooses_tag_digest_and_when_nodes_pull() {
        let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
        let pinned = format!("--image-digest=launcher={digest}");
        let arguments =
            ["--image-registry=r.example:5000/team", "--image-tag=1.2-rc", &pinned, "--image-pull-policy=Always"];
        let choice = choose(&args(&arguments), &[]);
        assert_eq!(choice.controller, "r.example:5000/team/garboard/controller:1.2-rc");
        assert_eq!(choice.launcher, format!("r.example:5000/team/garboard/launcher:1.2-rc@{digest}"));
        assert_eq!(choice.pull_policy, "Always");
        for wrong in ["launcher", "qemu=sha256:00", "node=sha256:00", &format!("node=md5:{}", "0".repeat(64))] {
            assert!(Line::try_parse_from(["install", "--image-digest", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cluster_has_one_installation() {
        let there = [json!({"metadata": {"namespace": "garboard", "name": "garboard-controller"}})];
        assert_eq!(elsewhere(&there, "garboard"), None);
        assert_eq!(elsewhere(&[], "vms"), None);
        assert!(elsewhere(&there, "vms").unwrap().contains("--garboard-namespace=garboard"));
    }

    #[test]
    fn a_cluster_with_kubevirt_is_left_alone() {
        let ours = json!({"metadata": {"name": "virtualmachines.kubevirt.io", "labels": {"app.kubernetes.io/part-of": "garboard"}}});
        assert_eq!(foreign(std::slice::from_ref(&ours), &[]), None);
        let theirs = json!({"metadata": {"name": "kubevirts.kubevirt.io", "labels": {"operator.kubevirt.io": ""}}});
        assert!(foreign(&[ours, theirs], &[]).unwrap().contains("kubevirts.kubevirt.io"));
        let operator = json!({"metadata": {"name": "virt-operator", "namespace": "kubevirt"}});
        assert!(foreign(&[], &[operator]).unwrap().contains("namespace kubevirt"));
    }
}
