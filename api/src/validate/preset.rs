//! What a VirtualMachineInstancePreset has to have. Whether the parts that it gives make sense is judged with each instance that gets
//! them, for they depend on the rest of it. Its disks, which no instance gets, are judged as KubeVirt judges them.

use super::disks;
use super::metadata;
use super::report::{Report, required};
use super::selectors::{Place, label_selector, label_values};
use super::subject::Subject;
use crate::cluster::ClusterConfig;
use crate::fault::{Fault, FieldPath};
use crate::v1::{VirtualMachineInstancePreset, VirtualMachineInstanceSpec};

/// Judges a preset.
pub(super) fn check(preset: &VirtualMachineInstancePreset, config: &ClusterConfig) -> Vec<Fault> {
    let mut report = Report::default();
    metadata::name(&preset.metadata, &mut report);
    let at = FieldPath::from("spec");
    let spec = preset.spec.as_ref();
    if spec.is_none_or(|spec| spec.domain.is_none()) {
        report.push(
            required(at.child("domain"), "a preset without a domain gives nothing")
                .instead("write `domain: {devices: {}}`"),
        );
    }
    if let Some(spec) = spec {
        let place = Place::same(at.child("selector"));
        label_selector(&spec.selector, &place, &mut report);
        label_values(&spec.selector, &place, &mut report);
        let domain = spec.domain.clone().unwrap_or_default();
        let alone = VirtualMachineInstanceSpec { domain, ..VirtualMachineInstanceSpec::default() };
        disks::check(&Subject { spec: &alone, at, config }, &mut report);
    }
    report.into_faults()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cluster::ClusterConfig;
    use crate::validate::{Admission, Object, admit};

    fn verdict(spec: Value) -> Admission {
        let preset = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
            "metadata": {"name": "small"}, "spec": spec});
        admit(&preset, &ClusterConfig::offline())
    }

    fn paths(faults: &[crate::Fault]) -> Vec<&str> {
        faults.iter().map(|fault| fault.path.as_str()).collect()
    }

    #[test]
    fn a_preset_has_a_domain_and_a_selector() {
        let selector = json!({"matchLabels": {"size": "small"}});
        let right = verdict(json!({"selector": selector, "domain": {"cpu": {"cores": 2}, "devices": {}}}));
        assert!(matches!(right.object, Some(Object::Preset(_))), "{:?}", right.faults);
        assert_eq!(right.warnings, []);
        assert_eq!(paths(&verdict(json!({"selector": selector})).faults), ["spec.domain"]);
        let odd = json!({"matchExpressions": [{"key": "size", "operator": "in", "values": ["x"]}]});
        let odd = verdict(json!({"selector": odd, "domain": {"devices": {}}}));
        assert_eq!(paths(&odd.faults), ["spec.selector.matchExpressions[0].operator"]);
    }

    #[test]
    fn a_disk_has_one_target_here_too() {
        let disks = json!([{"name": "a", "disk": {}}, {"name": "b", "disk": {}, "cdrom": {}}]);
        let faults = verdict(json!({"selector": {}, "domain": {"devices": {"disks": disks}}})).faults;
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["spec.domain.devices.disks[1]"], "{faults:#?}");
    }

    #[test]
    fn what_no_instance_gets_is_a_warning_and_what_is_not_supported_refused() {
        let domain = json!({"memory": {"guest": "1Gi"}, "devices": {"rng": {}}});
        let admission = verdict(json!({"selector": {}, "domain": domain}));
        assert_eq!(
            (admission.faults.len(), paths(&admission.warnings)),
            (0, vec!["spec.domain.memory", "spec.domain.devices.rng"])
        );
        let admission = verdict(json!({"selector": {}, "domain": {"cpu": {"realtime": {}}, "devices": {}}}));
        assert_eq!(paths(&admission.faults), ["spec.domain.cpu.realtime"]);
    }
}
