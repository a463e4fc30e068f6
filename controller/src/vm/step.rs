//! What may be done about a VirtualMachine.

use garboard_api::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::descheduler::Changes;

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make a DataVolume of one of the templates.
    CreateDataVolume {
        /// Its name.
        name: String,
        /// The object.
        object: Box<DynamicObject>,
        /// The claim that it copies, if it does not exist.
        absent_source: Option<String>,
        /// There is a claim of its name, which the importer may hand over to it. If it refuses, the claim is used as it is.
        is_claimed: bool,
    },
    /// Write down what is started.
    RecordRevision {
        /// The record.
        object: Box<ControllerRevision>,
        /// The machine was started last from another generation: also where this record is there already, there may be one of an
        /// earlier start, which is of no use any more.
        replaces: bool,
    },
    /// Make the instance.
    CreateVmi(Box<VirtualMachineInstance>),
    /// Have the instance stopped and removed; only this one, not a later one of its name.
    DeleteVmi {
        /// Its UID.
        uid: String,
    },
    /// Become the owner of an instance that has none: an earlier machine of this name left it running.
    AdoptVmi {
        /// The instance's UID.
        uid: String,
        /// As it was looked at: an owner that was taken off since is not put back.
        resource_version: Option<String>,
        /// Ourselves, after those that it has.
        owners: Vec<OwnerReference>,
    },
    /// Change annotations of the instance: it is still what its machine would make, or the template has others for a descheduler.
    Annotate {
        /// The instance's UID.
        uid: String,
        /// Their new values.
        annotations: Changes,
    },
    /// Let a halted machine run always: a start was asked for.
    Unhalt,
    /// Keep a copy of the instancetype or preference that the machine names.
    KeepCopy {
        /// The copy.
        object: Box<ControllerRevision>,
    },
    /// Delete a copy that the status does not name any more: after the status is written.
    DropCopy {
        /// Name of the ControllerRevision.
        name: String,
    },
    /// Write into the machine what the names of its instancetype and preference stand for.
    Expand {
        /// The changes of `spec`, as a merge patch.
        spec: Box<Value>,
    },
    /// Write on the machine how its guest identifies it, where a backup without the status has it.
    Keep {
        /// Value of the annotation.
        value: String,
    },
    /// Let the machine's object go.
    RemoveFinalizer {
        /// Those that stay.
        rest: Vec<String>,
    },
}
