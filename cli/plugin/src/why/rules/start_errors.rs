//! What a person does about a start that failed, by what its message says. The cause of an end is its reason; the message chooses the
//! advice alone. Pure.

use super::refused::edit;
use crate::look::is_name;
use crate::operate::emulation::EmulationSetting;
use crate::why::facts::Facts;

/// What to do about a message that has one of these texts.
struct Known {
    /// Parts of messages of the launcher, of the node agent and of QEMU.
    texts: &'static [&'static str],
    /// The advice.
    advice: fn(&Facts) -> String,
}

/// The first that fits: what is more exact comes first.
const KNOWN: &[Known] = &[
    Known {
        texts: &["`iscsi.secretRef` has no key"],
        advice: |facts| format!("kubectl edit secret {}    # add the key that the message names", chap_secret(facts)),
    },
    Known {
        texts: &["Authentication failure", "Authorization failure"],
        advice: |facts| {
            let check = "node.session.auth.username and node.session.auth.password, and what the target permits";
            format!("kubectl edit secret {}    # check {check}", chap_secret(facts))
        },
    },
    Known {
        texts: &["Failed to connect to LUN", "iSCSI: "],
        advice: |facts| {
            let node = node(facts);
            format!(
                "check that {node} reaches the portal, and that iqn and lun are those of the target: {}",
                edit(facts)
            )
        },
    },
    Known {
        texts: &["as its backing file", "keeps its data in an external file"],
        advice: |_| {
            "qemu-img convert -O qcow2 OLD NEW    # one file without another beneath it; then put that into the image or claim".to_owned()
        },
    },
    Known {
        texts: &["convert it to raw or qcow2 first"],
        advice: |_| {
            "qemu-img convert -O qcow2 OLD NEW    # then build the image anew, or write the claim anew".to_owned()
        },
    },
    Known {
        texts: &["the qcow2 header", "is marked corrupt", "the image is empty", "the qcow2 image cannot be used"],
        advice: |_| "qemu-img check IMAGE    # then build the image anew, or write the claim anew".to_owned(),
    },
    Known {
        texts: &["the container disk has no file", "the container disk has several files"],
        advice: |facts| format!("name the disk in the image as containerDisk.path: {}", edit(facts)),
    },
    Known {
        texts: &["check kernelPath and initrdPath", "check the name, or create the file first"],
        advice: |facts| format!("correct the path, or what is in the image: {}", edit(facts)),
    },
    Known {
        texts: &["is in use by another running VM"],
        advice: |_| {
            "kubectl get vmi -A -o wide    # which one has the disk? stop it, or mark the disk shareable in both"
                .to_owned()
        },
    },
    Known {
        texts: &["block device is expected", "regular file is expected"],
        advice: |_| {
            "kubectl get pvc -o custom-columns=NAME:.metadata.name,MODE:.spec.volumeMode    # Block or Filesystem"
                .to_owned()
        },
    },
    Known { texts: &["could not create the tap"], advice: |facts| format!("modprobe tun    # on {}", node(facts)) },
    Known {
        texts: &["and the guest is to run under KVM"],
        advice: |facts| {
            let command = EmulationSetting::of(&[], &facts.kubevirts).command();
            format!("load kvm_intel or kvm_amd on {}, or: {command}", node(facts))
        },
    },
    Known {
        texts: &["Could not access KVM kernel module", "/dev/kvm may not be opened", "failed to initialize kvm"],
        advice: |facts| {
            let setting = "device_ownership_from_security_context = true";
            format!("write {setting} into the configuration of containerd on {}, and restart it", node(facts))
        },
    },
    Known {
        texts: &["doesn't support requested feature", "unable to find CPU model"],
        advice: |facts| {
            format!("ask for a CPU model and features that the processor of {} has: {}", node(facts), edit(facts))
        },
    },
    Known {
        texts: &["no space is left", "No space left on device", "bytes free and"],
        advice: |facts| format!("free space on {}, or ask for a smaller disk: {}", node(facts), edit(facts)),
    },
    Known {
        texts: &["could not create the guest's memory", "Cannot allocate memory"],
        advice: |facts| format!("free memory of {}, or ask for less: {}", node(facts), edit(facts)),
    },
    Known {
        texts: &["has no key `"],
        advice: |_| "kubectl edit secret NAME    # add the key that the message names".to_owned(),
    },
];

/// What to do about a start that failed with this message, if that is known.
pub(super) fn advice(facts: &Facts, message: &str) -> Option<String> {
    let known = KNOWN.iter().find(|known| known.texts.iter().any(|text| message.contains(text)))?;
    Some((known.advice)(facts))
}

fn node(facts: &Facts) -> &str {
    facts.node_name().unwrap_or("the node")
}

/// The Secret with user and password of a disk on iSCSI. The author of the machine chooses the text, and a person runs what is advised.
fn chap_secret(facts: &Facts) -> &str {
    let volumes = facts.spec().map(|spec| spec.volumes.as_slice()).unwrap_or_default();
    let mut named = volumes.iter().filter_map(|volume| volume.iscsi.as_ref()?.secret_ref.as_ref());
    named.next().map(|secret| secret.name.as_str()).filter(|name| is_name(name)).unwrap_or("NAME")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_whose_name_is_none_is_in_no_command() {
        let advised = |secret: &str| {
            let source = json!({"targetPortal": "10.0.0.5:3260", "iqn": "iqn.2017-01.dev.garboard:a", "lun": 1,
                "secretRef": {"name": secret}});
            let spec = json!({"domain": {"devices": {}}, "volumes": [{"name": "data", "iscsi": source}]});
            let vmi = json!({"metadata": {"name": "vm"}, "spec": spec});
            let facts = Facts { vmi: Some(serde_json::from_value(vmi).unwrap()), ..Facts::default() };
            advice(&facts, "`iscsi.secretRef` has no key `node.session.auth.password`").unwrap()
        };
        assert!(advised("chap").starts_with("kubectl edit secret chap "));
        assert!(advised("$(reboot)").starts_with("kubectl edit secret NAME "));
    }
}
