//! Volumes: names, the one source each of them has, and what that source must have.
//!
//! Cloud-init sources have a file of their own, `cloud_init`. Whether a Secret or a claim exists is not judged here.

use super::addresses::image_path_problem;
use super::cloud_init;
use super::names::subdomain_problem;
use super::networks;
use super::report::{Report, duplicate, invalid, not_found, required, unsupported};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::{Fault, FieldPath, SentText};
use crate::suggest::one_of;
use crate::v1::{HostDisk, IscsiSource, Volume, VolumeSource};

const HOST_DISK_TYPES: &[&str] = &["Disk", "DiskOrCreate"];

/// Judges every volume by itself, then how many there are of those a guest can have only once.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("volumes");
    let volumes = &subject.spec.volumes;
    for (index, volume) in volumes.iter().enumerate() {
        let at = list.index(index);
        if let Some(first) = volumes.iter().take(index).position(|other| other.name == volume.name) {
            report.push(
                duplicate(at.child("name"), format!("another volume is named `{}` too: number {first}", volume.name))
                    .instead("give every volume a name of its own"),
            );
        }
        one_source(volume, &at, report);
        named_sources(volume, &at, report);
        files(subject, volume, &at, report);
        sizes(volume, &at, report);
        cloud_init::check(volume, &at, report);
    }
    once(&list, "serviceAccount", volumes.iter().filter(|volume| volume.service_account.is_some()).count(), report);
    once(&list, "downwardMetrics", volumes.iter().filter(|volume| volume.downward_metrics.is_some()).count(), report);
    once(&list, "memoryDump", volumes.iter().filter(|volume| volume.memory_dump.is_some()).count(), report);
    if !subject.spec.utility_volumes.is_empty() {
        report.push(
            invalid(subject.path("utilityVolumes"), "utility volumes are attached to a machine that runs already")
                .instead("remove them, and ask for them once it runs"),
        );
    }
}

fn one_source(volume: &Volume, at: &FieldPath, report: &mut Report) {
    match volume.sources().map(VolumeSource::field).collect::<Vec<_>>().as_slice() {
        [_] => {}
        [] => report.push(
            invalid(at.clone(), format!("the volume `{}` has no source", volume.name))
                .instead("write one, such as `containerDisk` or `persistentVolumeClaim`"),
        ),
        several => report.push(
            invalid(at.clone(), format!("the volume `{}` has several sources: {}", volume.name, several.join(", ")))
                .instead("keep one of them"),
        ),
    }
}

fn once(list: &FieldPath, source: &str, count: usize, report: &mut Report) {
    if count > 1 {
        report.push(
            invalid(list.clone(), format!("{count} volumes have the source `{source}`, and a guest has at most one"))
                .instead("keep one of them"),
        );
    }
}

fn named_sources(volume: &Volume, at: &FieldPath, report: &mut Report) {
    let mut name = |given: &str, path: FieldPath, what: &str, sent: Option<FieldPath>| {
        if given.is_empty() {
            let sent = sent.unwrap_or_else(|| path.clone());
            report.push(
                required(path, format!("the {what} is not named")).instead("write its name").field(sent.to_string()),
            );
        } else if let Some(problem) = subdomain_problem(given) {
            report.push(
                invalid(path, format!("the name `{}` {problem}", given.escape_debug()))
                    .instead(format!("write the name of a {what}")),
            );
        }
    };
    if let Some(source) = &volume.data_volume {
        name(&source.name, at.child("dataVolume").child("name"), "DataVolume", Some(at.child("name")));
    }
    if let Some(source) = &volume.config_map {
        name(text(&source.name), at.child("configMap").child("name"), "ConfigMap", None);
    }
    if let Some(source) = &volume.secret {
        name(text(&source.secret_name), at.child("secret").child("secretName"), "Secret", None);
    }
    if let Some(source) = &volume.service_account {
        let at = at.child("serviceAccount").child("serviceAccountName");
        name(text(&source.service_account_name), at, "service account", None);
    }
    if let Some(source) = &volume.persistent_volume_claim {
        name(&source.claim_name, at.child("persistentVolumeClaim").child("claimName"), "claim", None);
    }
    if let Some(source) = &volume.ephemeral {
        let at = at.child("ephemeral").child("persistentVolumeClaim");
        let claim = source.persistent_volume_claim.as_ref().map_or("", |claim| claim.claim_name.as_str());
        name(claim, at.child("claimName"), "claim under an ephemeral disk", None);
    }
    // No object of Kubernetes: what is a name of an image is judged where it is fetched.
    if volume.container_disk.as_ref().is_some_and(|source| source.image.is_empty()) {
        let path = at.child("containerDisk").child("image");
        report.push(required(path, "the image of the disk is not named").instead("write its name"));
    }
    if let Some(source) = &volume.sysprep {
        let given = [&source.config_map, &source.secret].into_iter().flatten().count();
        if given != 1 {
            report.push(
                invalid(at.child("sysprep"), format!("answer files come from one place, and {given} are written"))
                    .instead("write one of `configMap` and `secret`"),
            );
        }
    }
}

fn files(subject: &Subject<'_>, volume: &Volume, at: &FieldPath, report: &mut Report) {
    if let Some(path) = volume.container_disk.as_ref().and_then(|source| source.path.as_deref())
        && !path.is_empty()
        && let Some((problem, sent)) = image_path_problem(path)
    {
        let disk = at.child("containerDisk");
        report.push(
            invalid(disk.child("path"), format!("the path `{path}` {problem}"))
                .instead("write the absolute path of the disk in its image, such as `/disk/root.qcow2`")
                .field(disk.to_string())
                .sent(sent),
        );
    }
    if let Some(source) = &volume.container_path {
        if !subject.config.has(Gate::ContainerPathVolumes) {
            report.push(gate_missing(at, Gate::ContainerPathVolumes));
        }
        if let Some((problem, _)) = image_path_problem(&source.path) {
            report.push(
                invalid(at.child("containerPath").child("path"), format!("the path `{}` {problem}", source.path))
                    .instead("write an absolute path inside the launcher's container"),
            );
        }
    }
    if volume.downward_metrics.is_some() && !subject.config.has(Gate::DownwardMetrics) {
        report.push(gate_missing(at, Gate::DownwardMetrics));
    }
    if let Some(source) = &volume.host_disk {
        if !subject.config.has(Gate::HostDisk) {
            report.push(gate_missing(at, Gate::HostDisk).sent(SentText::GateOff { gate: Gate::HostDisk }));
        }
        host_disk(source, &at.child("hostDisk"), report);
    }
    if let Some(source) = &volume.iscsi {
        iscsi(source, &at.child("iscsi"), report);
        if gives_its_address_away(subject) {
            let text = "QEMU reaches no target: the bridge gives the pod's address to the guest";
            report.push(invalid(at.child("iscsi"), text).instead("write `masquerade: {}` for the interface"));
        }
    }
}

/// Whether the pod's address is the guest's, so that nothing in the pod has one.
fn gives_its_address_away(subject: &Subject<'_>) -> bool {
    let is_of_pod = |name: &str| networks::of_interface(subject, name).is_some_and(|network| network.pod.is_some());
    let interfaces = &subject.spec.domain.devices.interfaces;
    interfaces.iter().any(|interface| interface.bridge.is_some() && is_of_pod(&interface.name))
}

/// The parts of a portal: host, in brackets where it is an IPv6 address, and port.
#[must_use]
pub fn iscsi_portal(portal: &str) -> Option<(&str, u16)> {
    const USUAL_PORT: u16 = 3260;
    let is_alone = portal.ends_with(']') || !portal.contains(':');
    let (host, port) = if is_alone { (portal, None) } else { portal.rsplit_once(':').map(|(h, p)| (h, Some(p)))? };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_fit = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (1..=253).contains(&host.len())
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        }
    };
    let port = port.map_or(Some(USUAL_PORT), |port| port.parse().ok().filter(|port| *port > 0))?;
    is_fit.then_some((host, port))
}

fn iscsi(source: &IscsiSource, at: &FieldPath, report: &mut Report) {
    if iscsi_portal(&source.target_portal).is_none() {
        let text = format!("`{}` is no host with a port", source.target_portal.escape_debug());
        report.push(invalid(at.child("targetPortal"), text).instead("write for example `storage.example:3260`"));
    }
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
    let has_form = ["iqn.", "eui.", "naa."].iter().any(|form| source.iqn.starts_with(form));
    if !has_form || source.iqn.len() > 223 || !source.iqn.bytes().all(is_fit) {
        let text = format!("`{}` is no name of a target", source.iqn.escape_debug());
        report.push(invalid(at.child("iqn"), text).instead("write for example `iqn.2017-01.io.kubevirt:sn.42`"));
    }
    if !(0..=255).contains(&source.lun) {
        let text = format!("a target has no unit {}", source.lun);
        report.push(invalid(at.child("lun"), text).instead("write a number from 0 to 255"));
    }
    if let Some(secret) = &source.secret_ref
        && let Some(problem) = subdomain_problem(&secret.name)
    {
        let text = format!("the name `{}` {problem}", secret.name.escape_debug());
        report.push(invalid(at.child("secretRef").child("name"), text).instead("write the name of a Secret"));
    }
}

fn gate_missing(at: &FieldPath, gate: Gate) -> Fault {
    unsupported(at.clone(), format!("this kind of volume needs the feature gate {gate}"))
        .instead("switch the gate on, or use another kind of volume")
}

fn host_disk(source: &HostDisk, at: &FieldPath, report: &mut Report) {
    if source.path.is_empty() {
        report.push(
            not_found(at.child("path"), "no path is written").instead("write the absolute path of the disk file"),
        );
    }
    let kind = source.r#type.as_str();
    if !HOST_DISK_TYPES.contains(&kind) {
        report.push(
            unsupported(at.child("type"), format!("there is no kind of host disk `{kind}`"))
                .instead(one_of(kind, HOST_DISK_TYPES)),
        );
    }
    if kind == "Disk" && source.capacity.as_ref().is_some_and(|capacity| !capacity.is_zero()) {
        report.push(
            invalid(at.child("capacity"), "a disk that exists already has its capacity")
                .instead("remove `capacity`, or write the type `DiskOrCreate`"),
        );
    }
}

fn sizes(volume: &Volume, at: &FieldPath, report: &mut Report) {
    if let Some(source) = &volume.empty_disk
        && source.capacity.value() <= 0
    {
        report.push(
            invalid(at.child("emptyDisk").child("capacity"), format!("a disk cannot hold {} bytes", source.capacity))
                .instead("write a positive size, such as `2Gi`"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    const FIRST: &str = "spec.volumes[0]";

    #[test]
    fn every_kind_of_volume_is_legal() {
        for source in [
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            json!({"dataVolume": {"name": "dv"}}),
            json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}),
            json!({"emptyDisk": {"capacity": "2Gi"}}),
            json!({"hostDisk": {"path": "/d.img", "type": "DiskOrCreate", "capacity": "1Gi"}}),
            json!({"configMap": {"name": "cm"}}),
            json!({"secret": {"secretName": "s"}}),
            json!({"serviceAccount": {"serviceAccountName": "sa"}}),
            json!({"sysprep": {"secret": {"name": "s"}}}),
            json!({"memoryDump": {"claimName": "c"}}),
            json!({"iscsi": {"targetPortal": "storage.example", "iqn": "eui.02004567A425678D", "secretRef": {"name": "s"}}}),
        ] {
            let mut volume = source;
            volume["name"] = json!("root");
            accepted(&[&[(FIRST, volume)]]);
        }
    }

    #[test]
    fn a_volume_has_what_its_source_needs() {
        let named = |source: serde_json::Value| {
            let mut volume = source;
            volume["name"] = json!("root");
            [(FIRST, volume)]
        };
        let table = [
            (json!({}), FIRST, "no source"),
            (json!({"configMap": {"name": "a"}, "secret": {"secretName": "b"}}), FIRST, "configMap, secret"),
            (json!({"containerDisk": {"image": ""}}), "spec.volumes[0].containerDisk.image", "not named"),
            (
                json!({"containerDisk": {"image": "a", "path": "/disk/../etc/x"}}),
                "spec.volumes[0].containerDisk.path",
                "`..` component",
            ),
            (json!({"dataVolume": {"name": ""}}), "spec.volumes[0].dataVolume.name", "not named"),
            (json!({"secret": {}}), "spec.volumes[0].secret.secretName", "Secret"),
            (json!({"configMap": {}}), "spec.volumes[0].configMap.name", "ConfigMap"),
            (
                json!({"persistentVolumeClaim": {"claimName": "my disk"}}),
                "spec.volumes[0].persistentVolumeClaim.claimName",
                "the name of a claim",
            ),
            (json!({"ephemeral": {}}), "spec.volumes[0].ephemeral.persistentVolumeClaim.claimName", "claim"),
            (json!({"sysprep": {}}), "spec.volumes[0].sysprep", "0 are written"),
            (
                json!({"sysprep": {"secret": {"name": "s"}, "configMap": {"name": "c"}}}),
                "spec.volumes[0].sysprep",
                "2 are",
            ),
            (json!({"emptyDisk": {"capacity": "-1Gi"}}), "spec.volumes[0].emptyDisk.capacity", "positive"),
            (json!({"hostDisk": {"path": "", "type": "Disk"}}), "spec.volumes[0].hostDisk.path", "no path"),
            (
                json!({"iscsi": {"targetPortal": "a b", "iqn": "iqn.2017-01.io:x", "lun": 1}}),
                "spec.volumes[0].iscsi.targetPortal",
                "no host with a port",
            ),
            (
                json!({"iscsi": {"targetPortal": "host:0", "iqn": "iqn.2017-01.io:x", "lun": 1}}),
                "spec.volumes[0].iscsi.targetPortal",
                "no host with a port",
            ),
            (
                json!({"iscsi": {"targetPortal": "host", "iqn": "sn/42", "lun": 1}}),
                "spec.volumes[0].iscsi.iqn",
                "no name of a target",
            ),
            (
                json!({"iscsi": {"targetPortal": "[fd00::1]:3260", "iqn": "iqn.2017-01.io:x", "lun": 256}}),
                "spec.volumes[0].iscsi.lun",
                "no unit 256",
            ),
            (
                json!({"hostDisk": {"path": "/d", "type": "DiskOrCrate"}}),
                "spec.volumes[0].hostDisk.type",
                "did you mean `DiskOrCreate`?",
            ),
            (
                json!({"hostDisk": {"path": "/d", "type": "Disk", "capacity": "1Gi"}}),
                "spec.volumes[0].hostDisk.capacity",
                "exists already",
            ),
        ];
        for (source, path, part) in table {
            refused(&[(&named(source), path, part)]);
        }
    }

    #[test]
    fn some_volumes_exist_once() {
        for (source, what) in [
            (json!({"serviceAccount": {"serviceAccountName": "a"}}), "serviceAccount"),
            (json!({"memoryDump": {"claimName": "a"}}), "memoryDump"),
        ] {
            let (mut first, mut second) = (source.clone(), source);
            first["name"] = json!("root");
            second["name"] = json!("seed");
            refused(&[(&[(FIRST, first), ("spec.volumes[1]", second)], "spec.volumes", what)]);
        }
        refused(&[
            (&[("spec.volumes[1].name", json!("root"))], "spec.volumes[1].name", "named `root`"),
            (
                &[("spec.utilityVolumes[0]", json!({"name": "u", "claimName": "c"}))],
                "spec.utilityVolumes",
                "runs already",
            ),
        ]);
    }

    #[test]
    fn a_disk_on_iscsi_needs_an_address_of_the_pod() {
        let volume = json!({"name": "root", "iscsi": {"targetPortal": "host", "iqn": "iqn.2017-01.io:x", "lun": 1}});
        let bridge = ("spec.domain.devices.interfaces[0]", json!({"name": "default", "bridge": {}}));
        refused(&[(&[(FIRST, volume), bridge], "spec.volumes[0].iscsi", "reaches no target")]);
    }

    #[test]
    fn a_host_disk_needs_its_gate() {
        let volume = json!({"name": "root", "hostDisk": {"path": "/d.img", "type": "Disk"}});
        let faults = faults_in(&[(FIRST, volume)], &ClusterConfig::offline().without(Gate::HostDisk));
        assert_eq!(faults.iter().map(|fault| fault.field.as_str()).collect::<Vec<_>>(), [FIRST]);
        assert_eq!(faults[0].sent_text().as_deref(), Some("HostDisk feature gate is not enabled"));
    }

    #[test]
    fn a_bad_path_is_reported_at_the_disk_as_kubevirt_does() {
        let faults = faults(&[("spec.volumes[0].containerDisk.path", json!("disk.img"))]);
        assert_eq!(faults[0].field, "spec.volumes[0].containerDisk");
        let sent = "spec.volumes[0].containerDisk must be an absolute path to a file without relative components";
        assert_eq!(faults[0].sent_text().as_deref(), Some(sent));
    }
}
