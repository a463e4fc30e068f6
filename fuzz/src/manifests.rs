//! What users and API clients write.

use garboard_api::cluster::ClusterConfig;
use garboard_api::defaults::{Identity, default_vmi, vmi_of};
use garboard_api::fault::Fault;
use garboard_api::validate::{Admission, Object, admit, review, validate_vmi};
use serde_json::Value;

/// Tokens of manifests.
pub const TOKENS: &[&str] = &[
    "apiVersion: kubevirt.io/v1\n",
    "kind: VirtualMachine\n",
    "kind: VirtualMachineInstance\n",
    "spec:",
    "template:",
    "domain:",
    "devices:",
    "disks:",
    "volumes:",
    "interfaces: [{name: a, masquerade: {}}]",
    "networks: [{name: a, pod: {}}]",
    "containerDisk: {image: x}",
    "persistentVolumeClaim: {claimName: x}",
    "cloudInitNoCloud: {userData: x}",
    "bootOrder: 1",
    "memory: {guest: 1Gi}",
    "cpu: {sockets: 4294967295, cores: 4294967295}",
    "resources: {requests: {memory: 1Ei}}",
    "9223372036854775808",
    "-1",
    "1e400",
    ".inf",
    "\"\\u202e\"",
    "null",
    "{}",
    "[]",
    "&a",
    "*a",
    "- *a\n",
    "<<: *a",
    "!!binary",
    "---\n",
    "? ",
    "{\"spec\":",
];

/// Any text as a stream of documents, through structure, defaults and rules in both ways of asking. Neither reports
/// something empty or unprintable; both agree whether a manifest is acceptable; and what was accepted is accepted again as
/// it was stored, and stored again as it was.
pub fn manifests(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // The command reads with wider bounds and the same library.
    let Ok(values) = serde_saphyr::from_multiple::<Value>(text) else { return };
    values.iter().for_each(judge);
}

fn judge(manifest: &Value) {
    let config = ClusterConfig::default();
    let (admitted, reviewed) = (admit(manifest, &config), review(manifest, &config));
    assert_eq!(
        admitted.faults.is_empty(),
        reviewed.faults.is_empty(),
        "{:?} or {:?}",
        admitted.faults,
        reviewed.faults
    );
    assert_eq!(admitted.object.is_some(), admitted.faults.is_empty(), "an object and no refusal, or the reverse");
    for admission in [&admitted, &reviewed] {
        admission.faults.iter().chain(&admission.warnings).for_each(is_a_message);
    }
    let Some(object) = admitted.object else { return };
    let stored = stored(&object);
    let Admission { faults, object: again, .. } = admit(&stored, &config);
    assert!(faults.is_empty(), "what was stored is refused: {faults:?}");
    assert_eq!(again.as_ref().map(self::stored), Some(stored), "stored twice, two things");
    starts(&object, &config);
}

fn is_a_message(fault: &Fault) {
    let text = fault.to_string();
    assert!(!text.trim().is_empty());
    assert!(text.chars().all(|character| !character.is_control()), "not printable: {text:?}");
}

fn stored(object: &Object) -> Value {
    let written = match object {
        Object::VirtualMachine(vm) => serde_json::to_value(vm),
        Object::VirtualMachineInstance(vmi) => serde_json::to_value(vmi),
        Object::ReplicaSet(set) => serde_json::to_value(set),
        Object::Preset(preset) => serde_json::to_value(preset),
        Object::Pool(pool) => serde_json::to_value(pool),
        Object::KubeVirt(settings) => serde_json::to_value(settings),
        Object::Instancetype(size) => serde_json::to_value(size),
        Object::Preference(preference) => serde_json::to_value(preference),
    };
    written.expect("an object is JSON")
}

/// What `run` does before it plans: an instance with all its defaults, which are the same the second time.
fn starts(object: &Object, config: &ClusterConfig) {
    let mut vmi = match object {
        Object::VirtualMachine(vm) => vmi_of(vm),
        Object::VirtualMachineInstance(vmi) => (**vmi).clone(),
        Object::ReplicaSet(set) => garboard_api::set::instance(set, &garboard_api::set::name(set, 0)),
        Object::Pool(pool) => vmi_of(&garboard_api::pool::machine(pool, 0)),
        Object::Preset(_) | Object::KubeVirt(_) | Object::Instancetype(_) | Object::Preference(_) => return,
    };
    let identity = Identity { firmware_uuid: Default::default() };
    default_vmi(&mut vmi, config, &identity);
    let once = vmi.clone();
    default_vmi(&mut vmi, config, &identity);
    assert_eq!(once, vmi, "defaults that are not those of the first time");
    let _ = validate_vmi(&vmi, config);
}
