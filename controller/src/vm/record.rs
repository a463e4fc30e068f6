//! Has written down what is started (`revision`). A record is for a comparison later on: no start waits for one that is refused. One of
//! another owner keeps its machine from its start, as in KubeVirt: the instance would name it.

use garboard_api::conditions::Reason;
use garboard_api::metadata::label;
use garboard_api::{VirtualMachine, VirtualMachineInstance};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource};

use super::revision;
use crate::context::{Context, ReconcileError, is_refusal, made_by_us, while_trying};
use crate::events::NewEvent;
use crate::unread::{self, NamespacedName};

/// For messages: what is attempted here.
pub(super) const ACTION: &str = "create the ControllerRevision of the machine";

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It is new.
    Made,
    /// This machine has one of this generation.
    Known,
    /// A quota, a policy or a right that is missing keeps it from being made.
    Refused,
}

impl Outcome {
    /// Whether there may be records of earlier starts. Of the first generation there is none before it. A refusal may be that of
    /// a quota, and then they are what uses it up.
    fn drops_earlier(self, generation: i64, replaces: bool) -> bool {
        match self {
            Self::Made | Self::Refused => generation > 1,
            Self::Known => replaces,
        }
    }
}

/// Makes a record before its machine is started, and has those of earlier starts deleted, which no instance names any more. Says
/// whether the instance can name the record; where it cannot, the machine has an event.
///
/// # Errors
/// The API server could not be reached, or cannot answer now; another owner has taken the name.
pub(super) async fn record(
    context: &Context,
    vm: &VirtualMachine,
    revision: &ControllerRevision,
    replaces: bool,
) -> Result<bool, ReconcileError> {
    let namespace = NamespacedName::of(&vm.metadata)?.namespace;
    let outcome = match unread::create(&context.client, namespace, &made_by_us(), revision).await {
        Ok(()) => Outcome::Made,
        Err(kube::Error::Api(status)) if status.is_already_exists() => existing(context, vm, revision).await?,
        Err(kube::Error::Api(status)) if is_refusal(status.code) => {
            let note = format!("could not {ACTION}: {}; the machine is started without it", status.message);
            context.record(&vm.object_ref(&()), NewEvent::warning(Reason::FailedCreate, note));
            Outcome::Refused
        }
        Err(error) => return Err(while_trying(ACTION)(error)),
    };
    if outcome.drops_earlier(revision.revision, replaces) {
        drop_earlier(context, namespace, revision).await;
    }
    Ok(outcome != Outcome::Refused)
}

/// Whose the record is that has the name already: it is that of this very generation of this machine, unless another client made it.
async fn existing(
    context: &Context,
    vm: &VirtualMachine,
    revision: &ControllerRevision,
) -> Result<Outcome, ReconcileError> {
    let NamespacedName { namespace, name } = NamespacedName::of(&revision.metadata)?;
    let revisions: Api<ControllerRevision> = Api::namespaced(context.client.clone(), namespace);
    match revisions.get_opt(name).await {
        Ok(Some(found)) if revision::is_of(&found, vm) => Ok(Outcome::Known),
        Ok(Some(_)) => {
            Err(ReconcileError::Refused { message: format!("{name} exists and belongs to another owner; delete it") })
        }
        // It has been deleted since.
        Ok(None) => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("read the ControllerRevision of the machine")(error)),
    }
}

/// One that stays although it is of no use keeps no machine from its start.
async fn drop_earlier(context: &Context, namespace: &str, revision: &ControllerRevision) {
    let (name, labels) = (revision.metadata.name.as_deref(), revision.metadata.labels.as_ref());
    let of = labels.and_then(|labels| labels.get(label::REVISION_OF));
    let (Some(name), Some(of)) = (name, of) else { return };
    let revisions: Api<ControllerRevision> = Api::namespaced(context.client.clone(), namespace);
    let earlier = ListParams::default().labels(&format!("{}={of}", label::REVISION_OF));
    let earlier = earlier.fields(&format!("metadata.name!={name}"));
    if let Err(error) = revisions.delete_collection(&DeleteParams::default(), &earlier).await {
        tracing::warn!(%error, revision = name, "revisions of earlier starts could not be deleted");
    }
}

/// The instance of a start that has no record.
pub(super) fn unnamed(vmi: &VirtualMachineInstance) -> VirtualMachineInstance {
    let mut vmi = vmi.clone();
    if let Some(status) = &mut vmi.status {
        status.virtual_machine_revision_name = None;
    }
    vmi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_earlier_starts_go_wherever_there_may_be_some() {
        for outcome in [Outcome::Made, Outcome::Refused] {
            assert!(!outcome.drops_earlier(1, false), "{outcome:?}: a first start has none before it");
            // The generation that was observed last may be this one, although the instance was made from another.
            assert!(outcome.drops_earlier(2, false), "{outcome:?}");
        }
        assert!(!Outcome::Known.drops_earlier(2, false), "the same again");
        assert!(Outcome::Known.drops_earlier(2, true), "the start before this one did not come to it");
    }

    #[test]
    fn an_instance_without_a_record_names_none() {
        let mut vmi = VirtualMachineInstance::default();
        vmi.status.get_or_insert_default().virtual_machine_revision_name = Some("revision-start-vm-7f-3".to_owned());
        vmi.status.get_or_insert_default().phase = Some("Pending".to_owned());
        let status = unnamed(&vmi).status.unwrap();
        assert_eq!((status.virtual_machine_revision_name, status.phase.as_deref()), (None, Some("Pending")));
    }
}
