//! Devices of the host given to a guest: GPUs, host devices, the claims they come from, vsock, filesystems.

use std::collections::BTreeMap;

use super::report::{Report, duplicate, invalid, not_found, required, unsupported};
use super::subject::{Subject, text};
use crate::cluster::Gate;
use crate::fault::FieldPath;
use crate::v1::GPU;

/// One device of the host, by device plugin or by resource claim.
struct Device<'a> {
    name: &'a str,
    claim: Option<&'a str>,
    request: Option<&'a str>,
}

impl Device<'_> {
    fn is_claimed(&self) -> bool {
        self.name.is_empty() && (self.claim.is_some() || self.request.is_some())
    }
}

/// Judges devices of the host.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let devices = &subject.spec.domain.devices;
    claims_named_once(subject, report);
    let gpus: Vec<Device<'_>> = devices
        .gpus
        .iter()
        .map(|gpu| Device {
            name: text(&gpu.device_name),
            claim: gpu.claim_name.as_deref(),
            request: gpu.request_name.as_deref(),
        })
        .collect();
    let others: Vec<Device<'_>> = devices
        .host_devices
        .iter()
        .map(|device| Device {
            name: text(&device.device_name),
            claim: device.claim_name.as_deref(),
            request: device.request_name.as_deref(),
        })
        .collect();
    let gpu_list = subject.path("domain.devices.gpus");
    let other_list = subject.path("domain.devices.hostDevices");
    if gpus.iter().any(Device::is_claimed) && !gpus.iter().all(Device::is_claimed) {
        report.push(
            invalid(gpu_list.clone(), "some GPUs come from claims and some from a device plugin")
                .instead("write `deviceName` for all of them, or `claimName` and `requestName` for all"),
        );
    }
    let mut used = BTreeMap::new();
    let list = List { at: &gpu_list, gate: Gate::GpusWithDra };
    gpus.iter().enumerate().for_each(|(index, gpu)| judge(subject, gpu, &list.place(index), &mut used, report));
    let list = List { at: &other_list, gate: Gate::HostDevicesWithDra };
    others.iter().enumerate().for_each(|(index, other)| judge(subject, other, &list.place(index), &mut used, report));
    if !devices.host_devices.is_empty() && !subject.config.has(Gate::HostDevices) {
        report.push(
            unsupported(other_list, format!("host devices need the feature gate {}", Gate::HostDevices))
                .instead("switch the gate on, or remove them")
                .field(subject.at.child("HostDevices").to_string()),
        );
    }
    displays(subject, &devices.gpus, report);
    vsock(subject, report);
    reservations(subject, report);
    downward_metrics(subject, report);
}

fn claims_named_once(subject: &Subject<'_>, report: &mut Report) {
    let claims = &subject.spec.resource_claims;
    for (index, claim) in claims.iter().enumerate() {
        if claims.iter().take(index).any(|other| other.name == claim.name) {
            report.push(
                duplicate(
                    subject.path("resourceClaims").index(index).child("name"),
                    format!("another claim is named `{}` too", claim.name),
                )
                .instead("give every claim a name of its own"),
            );
        }
    }
}

/// A list of devices, and the gate that claims in it need.
struct List<'a> {
    at: &'a FieldPath,
    gate: Gate,
}

/// One element of it.
struct Place<'a> {
    at: FieldPath,
    list: &'a List<'a>,
}

impl List<'_> {
    fn place(&self, index: usize) -> Place<'_> {
        Place { at: self.at.index(index), list: self }
    }
}

/// The requests of claims that are used already, and where.
type Used<'a> = BTreeMap<(&'a str, &'a str), FieldPath>;

fn judge<'a>(subject: &Subject<'_>, device: &Device<'a>, place: &Place<'_>, used: &mut Used<'a>, report: &mut Report) {
    let at = &place.at;
    let (sent, gate) = (place.list.at.to_string(), place.list.gate);
    let claimed = device.claim.is_some() || device.request.is_some();
    if device.name.is_empty() && !claimed {
        report.push(
            required(at.child("deviceName"), "the device is not named")
                .instead("write `deviceName`, or `claimName` and `requestName`")
                .field(sent),
        );
    } else if !device.name.is_empty() && claimed {
        report.push(
            invalid(at.clone(), "the device is named and claimed")
                .instead("keep either `deviceName`, or `claimName` and `requestName`")
                .field(sent),
        );
    } else if claimed && !subject.config.has(gate) {
        report.push(
            unsupported(at.clone(), format!("devices from claims need the feature gate {gate}"))
                .instead("switch the gate on, or write `deviceName`")
                .field(sent),
        );
    } else if claimed {
        claim(subject, device, at, used, report);
    }
}

fn claim<'a>(subject: &Subject<'_>, device: &Device<'a>, at: &FieldPath, used: &mut Used<'a>, report: &mut Report) {
    let (name, request) = (device.claim.unwrap_or_default(), device.request.unwrap_or_default());
    for (value, field) in [(name, "claimName"), (request, "requestName")] {
        if value.is_empty() {
            report.push(
                required(at.child(field), format!("`{field}` is missing"))
                    .instead("name both the claim and the request in it"),
            );
        }
    }
    if name.is_empty() || request.is_empty() {
        return;
    }
    if let Some(other) = used.get(&(name, request)) {
        report.push(
            duplicate(at.clone(), format!("`{other}` uses the request `{request}` of `{name}` too"))
                .instead("use each request once"),
        );
    } else {
        used.insert((name, request), at.clone());
    }
    if !subject.spec.resource_claims.iter().any(|listed| listed.name == name) {
        report.push(
            not_found(at.child("claimName"), format!("`{name}` is not in `resourceClaims`"))
                .instead("list the claim there")
                .field(subject.path("resourceClaims").to_string()),
        );
    }
}

fn displays(subject: &Subject<'_>, gpus: &[GPU], report: &mut Report) {
    let shows_early = |gpu: &&GPU| {
        let display = gpu.virtual_gpu_options.as_ref().and_then(|options| options.display.as_ref());
        display.is_some_and(|display| {
            display.enabled != Some(false) && display.ram_fb.as_ref().is_none_or(|early| early.enabled == Some(true))
        })
    };
    if gpus.iter().filter(shows_early).count() > 1 {
        report.push(
            invalid(subject.path("domain.devices.gpus"), "several GPUs show a picture before their driver runs")
                .instead("write `ramFB: {enabled: false}` for all but one")
                .field(subject.at.child("GPUs").to_string()),
        );
    }
}

fn vsock(subject: &Subject<'_>, report: &mut Report) {
    if subject.spec.domain.devices.autoattach_vsock == Some(true) && !subject.config.has(Gate::Vsock) {
        report.push(
            unsupported(
                subject.path("domain.devices.autoattachVSOCK"),
                format!("vsock needs the feature gate {}", Gate::Vsock),
            )
            .instead("switch the gate on, or remove it"),
        );
    }
}

fn reservations(subject: &Subject<'_>, report: &mut Report) {
    if subject.config.has(Gate::PersistentReservation) {
        return;
    }
    let list = subject.path("domain.devices.disks");
    for (index, disk) in subject.spec.domain.devices.disks.iter().enumerate() {
        if disk.lun.as_ref().is_some_and(|lun| lun.reservation == Some(true)) {
            report.push(
                unsupported(
                    list.index(index).child("lun").child("reservation"),
                    format!("persistent reservations need the feature gate {}", Gate::PersistentReservation),
                )
                .instead("switch the gate on, or remove `reservation`")
                .field(list.child("luns").child("reservation").to_string()),
            );
        }
    }
}

fn downward_metrics(subject: &Subject<'_>, report: &mut Report) {
    if subject.spec.domain.devices.downward_metrics.is_some() && !subject.config.has(Gate::DownwardMetrics) {
        report.push(
            unsupported(
                subject.path("domain.devices.downwardMetrics"),
                format!("downward metrics need the feature gate {}", Gate::DownwardMetrics),
            )
            .instead("switch the gate on, or remove them"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    const GPUS: &str = "spec.domain.devices.gpus";
    const HOST: &str = "spec.domain.devices.hostDevices";

    #[test]
    fn a_device_is_named_or_claimed() {
        accepted(&[
            &[(GPUS, json!([{"name": "g", "deviceName": "vendor.example/gpu"}]))],
            &[
                (GPUS, json!([{"name": "g", "claimName": "c", "requestName": "r"}])),
                ("spec.resourceClaims", json!([{"name": "c"}])),
            ],
        ]);
        refused(&[
            (&[(GPUS, json!([{"name": "g"}]))], "spec.domain.devices.gpus[0].deviceName", "not named"),
            (
                &[(GPUS, json!([{"name": "g", "deviceName": "d", "claimName": "c", "requestName": "r"}]))],
                "spec.domain.devices.gpus[0]",
                "named and claimed",
            ),
            (
                &[(HOST, json!([{"name": "h", "claimName": "c"}]))],
                "spec.domain.devices.hostDevices[0].requestName",
                "missing",
            ),
            (
                &[(HOST, json!([{"name": "h", "claimName": "c", "requestName": "r"}]))],
                "spec.domain.devices.hostDevices[0].claimName",
                "not in `resourceClaims`",
            ),
            (
                &[("spec.resourceClaims", json!([{"name": "c"}, {"name": "c"}]))],
                "spec.resourceClaims[1].name",
                "another claim",
            ),
        ]);
    }

    #[test]
    fn gates_are_reported_as_kubevirt_does() {
        let without = |changes: &[(&str, serde_json::Value)], gate| {
            let faults = faults_in(changes, &ClusterConfig::offline().without(gate));
            faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>()
        };
        assert_eq!(without(&[(HOST, json!([{"name": "h"}]))], Gate::HostDevices), [HOST, "spec.HostDevices"]);
        assert_eq!(
            without(&[("spec.domain.devices.autoattachVSOCK", json!(true))], Gate::Vsock),
            ["spec.domain.devices.autoattachVSOCK"]
        );
        let lun = [
            ("spec.domain.devices.disks[0]", json!({"name": "root", "lun": {"bus": "scsi", "reservation": true}})),
            ("spec.volumes[0]", json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}})),
        ];
        assert_eq!(without(&lun, Gate::PersistentReservation), ["spec.domain.devices.disks.luns.reservation"]);
        assert_eq!(
            without(&[("spec.domain.devices.downwardMetrics", json!({}))], Gate::DownwardMetrics),
            ["spec.domain.devices.downwardMetrics"]
        );
    }

    #[test]
    fn one_screen_shows_a_picture_before_its_driver_runs() {
        let gpu = |name: &str| json!({"name": name, "deviceName": "d", "virtualGPUOptions": {"display": {}}});
        let faults = faults(&[(GPUS, json!([gpu("a"), gpu("b")]))]);
        assert_eq!(faults[0].field, "spec.GPUs");
    }
}
