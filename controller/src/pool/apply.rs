//! Doing what was decided about a VirtualMachinePool. Every step may be repeated, and any may be the last.

use futures::future::join_all;
use garboard_api::conditions::Reason;
use garboard_api::v1::VirtualMachinePoolStatus;
use garboard_api::{VirtualMachinePool, pool};
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::decide::{Decision, Step, World};
use super::steps::Steps;
use super::{record, status};
use crate::context::{Context, FIELD_MANAGER, ReconcileError, while_trying};
use crate::events::NewEvent;
use crate::reconcilers::Leader;
use crate::requests::{batches, first_failure};
use crate::stores::{Kind, Pools};
use crate::unread::{self, NamespacedName};

pub(super) async fn apply(leader: &Leader, world: &World, decision: &Decision) -> Result<(), ReconcileError> {
    let (context, pool) = (&leader.context, &world.pool);
    let before = pool.status.clone().unwrap_or_default();
    match take(leader, world, decision).await {
        Ok(()) => {
            write_status(context, pool, &before, &decision.status).await?;
            let event = status::pause_changed(&before, &decision.status);
            event.into_iter().for_each(|event| context.record(&pool.object_ref(&()), event));
            Ok(())
        }
        Err(Failure { stage, error }) => {
            if let Some(message) = error.message() {
                let (reason, event) = stage.reasons();
                let note = format!("could not {}: {message}", stage.action());
                if !status::is_known(&before, &note) {
                    context.record(&pool.object_ref(&()), NewEvent::warning(event, note.as_str()));
                }
                let failed = status::because(&decision.status, &before, reason, &note, world.now);
                write_status(context, pool, &before, &failed).await?;
            }
            Err(error)
        }
    }
}

/// What a step is for.
#[derive(Clone, Copy)]
enum Stage {
    Claims,
    Create,
    Delete,
    Update,
}

impl Stage {
    /// The reason of the condition where it fails, and that of the event; KubeVirt's.
    const fn reasons(self) -> (Reason, Reason) {
        match self {
            Self::Claims => (Reason::FailedAdopt, Reason::FailedAdopt),
            Self::Create => (Reason::FailedScaleOut, Reason::FailedCreate),
            Self::Delete => (Reason::FailedScaleIn, Reason::FailedDelete),
            Self::Update => (Reason::FailedUpdate, Reason::FailedUpdate),
        }
    }

    /// How many failures do not keep the rest from being tried. A machine that must not be deleted or changed says nothing of the others; a
    /// quota that has no room for one machine has none for the next.
    const fn patience(self) -> usize {
        match self {
            Self::Claims | Self::Create => 0,
            Self::Delete | Self::Update => 3,
        }
    }

    /// Whether a failure counts for that. That another client was faster says nothing of other machines, either.
    fn counts(self, error: &ReconcileError) -> bool {
        let is_of_one = matches!(self, Self::Delete | Self::Update);
        !(is_of_one && matches!(error, ReconcileError::Overtaken))
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Claims => "adopt or release a VirtualMachine",
            Self::Create => "create a VirtualMachine",
            Self::Delete => "delete a VirtualMachine",
            Self::Update => "change a VirtualMachine",
        }
    }
}

/// What could not be done.
struct Failure {
    stage: Stage,
    error: ReconcileError,
}

/// Takes the steps in their order. The first request of a kind goes alone, then two, and so on.
async fn take(leader: &Leader, world: &World, decision: &Decision) -> Result<(), Failure> {
    let steps = Steps::of(leader, world).map_err(|error| Failure { stage: Stage::Claims, error })?;
    all(steps, Stage::Claims, &decision.claims).await?;
    let created = create_all(leader, world, decision, steps).await;
    all(steps, Stage::Delete, &decision.delete).await?;
    // Only now: where a quota has no room for a new one, what is too many has to go first.
    created?;
    all(steps, Stage::Update, &decision.update).await
}

async fn create_all(leader: &Leader, world: &World, decision: &Decision, steps: Steps<'_>) -> Result<(), Failure> {
    if let Some(named) = &decision.record {
        let recorded = record::record(&leader.context, &world.pool, named).await;
        recorded.map_err(|error| Failure { stage: Stage::Create, error })?;
    }
    all(steps, Stage::Create, &decision.create).await
}

async fn all(steps: Steps<'_>, stage: Stage, of_stage: &[Step]) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for batch in batches(of_stage) {
        let outcomes = join_all(batch.iter().map(|step| steps.take(step))).await;
        failed.extend(outcomes.into_iter().filter_map(Result::err));
        if failed.iter().filter(|error| stage.counts(error)).count() > stage.patience() {
            break;
        }
    }
    match first_failure(failed.into_iter().map(Err).collect()) {
        None => Ok(()),
        Some(error) => Err(Failure { stage, error }),
    }
}

/// Written if it is another one: not for each machine that changes, but for each that counts or is ready.
async fn write_status(
    context: &Context,
    pool: &VirtualMachinePool,
    before: &VirtualMachinePoolStatus,
    status: &VirtualMachinePoolStatus,
) -> Result<(), ReconcileError> {
    if before == status {
        return Ok(());
    }
    let applied = json!({
        "apiVersion": pool::API_VERSION,
        "kind": Pools::KIND,
        "metadata": { "uid": pool.metadata.uid },
        "status": status,
    });
    let (object, params) = (NamespacedName::of(&pool.metadata)?, PatchParams::apply(FIELD_MANAGER).force());
    match unread::patch_status::<Pools>(&context.client, object, &params, &Patch::Apply(applied)).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
        Err(error) => Err(while_trying("write the status of the VirtualMachinePool")(error)),
    }
}
