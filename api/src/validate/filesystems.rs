//! Filesystems shared with a guest, and the volumes they come from.

use super::report::{Report, duplicate, not_found, unsupported};
use super::subject::Subject;
use crate::cluster::Gate;

/// Judges the filesystems of a guest.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("domain.devices.filesystems");
    let filesystems = &subject.spec.domain.devices.filesystems;
    for (index, filesystem) in filesystems.iter().enumerate() {
        let at = list.index(index).child("name");
        let name = &filesystem.name;
        if filesystems.iter().take(index).any(|other| other.name == *name) {
            report.push(
                duplicate(at.clone(), format!("another filesystem is named `{name}` too"))
                    .instead("give every filesystem a name of its own"),
            );
        }
        let Some(volume) = subject.spec.volumes.iter().rev().find(|volume| volume.name == *name) else {
            report.push(
                not_found(at, format!("no volume is named `{name}`")).instead("add a volume of that name to `volumes`"),
            );
            continue;
        };
        let on_storage = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
        if on_storage && !subject.config.has(Gate::VirtiofsStorage) {
            report.push(
                unsupported(at, format!("a filesystem on a claim needs the feature gate {}", Gate::VirtiofsStorage))
                    .instead("switch the gate on, or use the volume as a disk")
                    .field(list.to_string()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults_in, refused};

    const LIST: &str = "spec.domain.devices.filesystems";

    #[test]
    fn a_filesystem_needs_a_volume_of_its_name() {
        accepted(&[&[(LIST, json!([{"name": "root", "virtiofs": {}}]))]]);
        refused(&[
            (
                &[(LIST, json!([{"name": "none", "virtiofs": {}}]))],
                "spec.domain.devices.filesystems[0].name",
                "no volume",
            ),
            (
                &[(LIST, json!([{"name": "root", "virtiofs": {}}, {"name": "root", "virtiofs": {}}]))],
                "spec.domain.devices.filesystems[1].name",
                "another filesystem",
            ),
        ]);
    }

    #[test]
    fn a_filesystem_on_a_claim_needs_its_gate() {
        let changes = [
            (LIST, json!([{"name": "root", "virtiofs": {}}])),
            ("spec.volumes[0]", json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}})),
        ];
        let faults = faults_in(&changes, &ClusterConfig::offline().without(Gate::VirtiofsStorage));
        assert_eq!(faults[0].field, LIST);
    }
}
