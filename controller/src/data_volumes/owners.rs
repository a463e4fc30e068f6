//! Whose the DataVolumes are that a machine brings along. Pure.
//!
//! ```text
//!   DataVolume, or the claim of its name, is controlled by
//!     this machine ───────────────────────────► its own
//!     another one ────────────────────────────► that one's, and goes with it
//!     a machine or DataVolume that is gone,
//!     or a machine that is being deleted ─────► being removed
//!   is controlled by nothing, and made for a machine of another pool ─► left for the machines of that pool
//! ```
//!
//! Users choose the names in templates, and a pool appends a number alone: two machines may name the same. A machine neither makes nor uses
//! what is not its own. What a volume names without a template is shared on purpose, and whose it is does not matter.

use garboard_api::metadata::volume_annotation;
use garboard_api::{FieldPath, VirtualMachine};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::stores::{Cached, DataVolumes, Kind, Machines, Pools};

/// Why a machine may not use what has the name of one of its DataVolumes; first what does not become better by waiting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// It is another machine's, or left for another pool: which field names it, and what to write there.
    Others(String),
    /// It is being removed, with the machine that had it.
    Leaves(String),
}

impl Foreign {
    /// For the machine's condition.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Others(message) | Self::Leaves(message) => message,
        }
    }
}

/// Whether a machine may not use what has the name of one of its DataVolumes. `place` is that of the template; `kind` and `metadata` are
/// of the DataVolume, or of the claim where there is none; `is_there` says whether an owner of it exists and stays.
pub(super) fn foreign(
    vm: &VirtualMachine,
    place: usize,
    (kind, metadata): (&str, &ObjectMeta),
    is_there: impl Fn(&OwnerReference) -> bool,
) -> Option<Foreign> {
    let object = format!("the {kind} {}", metadata.name.as_deref().unwrap_or_default());
    let Some(owner) = controller(metadata) else {
        let made_for = metadata.annotations.as_ref()?.get(volume_annotation::POOL)?;
        let is_left_to_it = pool_of(vm).is_none_or(|own| own == made_for);
        return (!is_left_to_it).then(|| {
            let (at, instead, key) = (path(vm, place), instead(vm), volume_annotation::POOL);
            let left = format!("{object} was left by a machine of the VirtualMachinePool {made_for}");
            Foreign::Others(format!("{at}: {left}; remove its annotation {key} to use it here, or {instead}"))
        });
    };
    let is_of_machine = owner.kind == Machines::KIND;
    let is_own = is_of_machine && Some(&owner.uid) == vm.metadata.uid.as_ref();
    if is_own || !(is_of_machine || owner.kind == DataVolumes::KIND) {
        return None;
    }
    let OwnerReference { kind: owners_kind, name: owners_name, .. } = owner;
    match (is_there(owner), is_of_machine) {
        (true, true) => {
            let (at, instead) = (path(vm, place), instead(vm));
            Some(Foreign::Others(format!("{at}: {object} belongs to the {owners_kind} {owners_name}; {instead}")))
        }
        (true, false) => None,
        (false, _) => {
            let gone = format!("{object} belongs to an earlier {owners_kind} {owners_name} and is being removed");
            Some(Foreign::Leaves(format!("{gone}; this machine gets one of its own when it is gone")))
        }
    }
}

/// Whether a machine is the owner that an object names, and stays: what it controls goes with it when it is being deleted.
pub(super) fn stays(machine: &Cached<Machines>, owner: &OwnerReference) -> bool {
    machine.meta().uid.as_ref() == Some(&owner.uid) && machine.raw()["metadata"]["deletionTimestamp"].is_null()
}

/// The owner that controls an object.
fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The name of the pool that a machine is of.
pub(super) fn pool_of(vm: &VirtualMachine) -> Option<&str> {
    controller(&vm.metadata).filter(|owner| owner.kind == Pools::KIND).map(|owner| owner.name.as_str())
}

/// The field that names a DataVolume: a change of a pool's machine would not last.
fn path(vm: &VirtualMachine, place: usize) -> String {
    let of_machine = FieldPath::from("spec.dataVolumeTemplates").index(place).child("metadata.name");
    match pool_of(vm) {
        Some(pool) => format!("spec.virtualMachineTemplate.{of_machine} of the VirtualMachinePool {pool}"),
        None => of_machine.to_string(),
    }
}

fn instead(vm: &VirtualMachine) -> String {
    let own = pool_of(vm).or(vm.metadata.name.as_deref()).unwrap_or_default();
    let name = format!("write a name there that no other machine or pool uses, such as one that begins with `{own}-`");
    match pool_of(vm) {
        // Also those that have their own: with a rollout they are deleted with these.
        Some(_) => format!("{name}; all machines of the pool then get new volumes: copy first what is to be kept"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A machine, of a pool or not.
    fn machine(pool: Option<&str>) -> VirtualMachine {
        let owner = |pool: &str| {
            json!([{"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": pool, "uid": "pool",
                "controller": true}])
        };
        let owners = pool.map_or(json!([]), owner);
        let metadata = json!({"name": "b-0", "namespace": "ns", "uid": "own", "ownerReferences": owners});
        serde_json::from_value(json!({ "metadata": metadata, "spec": {"template": {}} })).unwrap()
    }

    fn owner(kind: &str, uid: &str) -> Value {
        json!([{"apiVersion": "v1", "kind": kind, "name": "a-0", "uid": uid, "controller": true}])
    }

    /// What is judged of an object with these owners, and made for this pool; the machine `there` exists.
    fn judged(vm: &VirtualMachine, owners: Value, made_for: Option<&str>) -> Option<Foreign> {
        let annotations = made_for.map_or(json!({}), |pool| json!({"garboard.dev/pool": pool}));
        let metadata = json!({"name": "disk-0", "ownerReferences": owners, "annotations": annotations});
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        foreign(vm, 1, ("DataVolume", &metadata), |owner| owner.uid == "there")
    }

    #[test]
    fn what_another_machine_owns_is_that_ones() {
        let of_pool = judged(&machine(Some("b")), owner("VirtualMachine", "there"), Some("a"));
        let Some(Foreign::Others(message)) = of_pool else { panic!("{of_pool:?}") };
        let expected = "spec.virtualMachineTemplate.spec.dataVolumeTemplates[1].metadata.name of the VirtualMachinePool b: the \
                        DataVolume disk-0 belongs to the VirtualMachine a-0; write a name there that no other machine or pool \
                        uses, such as one that begins with `b-`; all machines of the pool then get new volumes: copy first what is \
                        to be kept";
        assert_eq!(message, expected);
        let of_user = judged(&machine(None), owner("VirtualMachine", "there"), None);
        let Some(Foreign::Others(message)) = of_user else { panic!("{of_user:?}") };
        assert!(message.starts_with("spec.dataVolumeTemplates[1].metadata.name: the DataVolume disk-0 "), "{message}");
        assert!(message.ends_with("`b-0-`"), "{message}");
    }

    #[test]
    fn what_it_owns_itself_or_an_object_of_another_kind_is_used() {
        for owners in [
            owner("VirtualMachine", "own"),
            owner("DataVolume", "there"),
            owner("DataImportCron", "gone"),
            json!([{"apiVersion": "v1", "kind": "VirtualMachine", "name": "a-0", "uid": "there"}]),
            json!([]),
        ] {
            assert_eq!(judged(&machine(Some("b")), owners.clone(), None), None, "{owners}");
        }
    }

    #[test]
    fn what_is_of_a_machine_that_is_gone_is_waited_for() {
        for kind in ["VirtualMachine", "DataVolume"] {
            let found = judged(&machine(Some("b")), owner(kind, "gone"), Some("b"));
            let Some(Foreign::Leaves(message)) = found else { panic!("{found:?}") };
            assert!(message.contains(&format!("an earlier {kind} a-0 and is being removed")), "{message}");
        }
    }

    #[test]
    fn what_a_machine_that_is_being_deleted_has_goes_with_it() {
        let stored = |uid: &str, deleted: Value| -> Cached<Machines> {
            let metadata = json!({"name": "a-0", "namespace": "ns", "uid": uid, "deletionTimestamp": deleted});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
        };
        let named: Vec<OwnerReference> = serde_json::from_value(owner("VirtualMachine", "there")).unwrap();
        assert!(stays(&stored("there", Value::Null), &named[0]));
        assert!(!stays(&stored("later", Value::Null), &named[0]), "another of its name");
        assert!(!stays(&stored("there", json!("2026-01-01T00:00:00Z")), &named[0]));
    }

    #[test]
    fn what_a_machine_left_is_for_the_machines_of_its_pool_and_for_those_of_users() {
        let left = |pool: Option<&str>, made_for: Option<&str>| judged(&machine(pool), json!([]), made_for);
        assert_eq!((left(Some("b"), Some("b")), left(Some("b"), None)), (None, None));
        assert_eq!((left(None, Some("a")), left(None, None)), (None, None), "a user has named it");
        let Some(Foreign::Others(message)) = left(Some("b"), Some("a")) else { panic!("it is not refused") };
        let annotation =
            "was left by a machine of the VirtualMachinePool a; remove its annotation garboard.dev/pool to use it here";
        assert!(message.contains(&format!("{annotation}, or write a name there")), "{message}");
        assert!(
            message.ends_with("all machines of the pool then get new volumes: copy first what is to be kept"),
            "{message}"
        );
    }
}
