//! The steps of a decision about a VirtualMachinePool, one by one. Each may be repeated.

use std::sync::Arc;

use garboard_api::conditions::Reason;
use garboard_api::metadata::{annotation, label};
use garboard_api::pool;
use garboard_api::run_strategy::RunStrategy;
use garboard_protocol::causes::ErrorChain;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::decide::{Step, World};
use super::member::Member;
use super::rewrite;
use crate::context::{FIELD_MANAGER, ReconcileError, made_by_us, while_trying};
use crate::events::NewEvent;
use crate::reconcilers::Leader;
use crate::replica_set::decide::Victim;
use crate::requests::change_owners;
use crate::stores::{Cached, Instances, Kind, Machines};
use crate::unread::{self, NamespacedName};

/// What the steps of one pool need.
#[derive(Clone, Copy)]
pub(super) struct Steps<'a> {
    leader: &'a Leader,
    world: &'a World,
    namespace: &'a str,
}

impl<'a> Steps<'a> {
    /// For a pool.
    ///
    /// # Errors
    /// [`ReconcileError::Incomplete`]: it has no namespace or no name.
    pub(super) fn of(leader: &'a Leader, world: &'a World) -> Result<Self, ReconcileError> {
        let namespace = NamespacedName::of(&world.pool.metadata)?.namespace;
        Ok(Self { leader, world, namespace })
    }

    /// Takes one.
    ///
    /// # Errors
    /// The API server refused, or another client was faster.
    pub(super) async fn take(self, step: &Step) -> Result<(), ReconcileError> {
        match step {
            Step::Claim(claim) => change_owners::<Machines>(&self.leader.context.client, self.namespace, claim).await,
            Step::Create(number) => self.create(*number).await,
            Step::Delete { victim, resource_version, instance, why } => {
                self.is_run_by(victim, instance.as_deref()).await?;
                self.delete(victim, resource_version.clone(), why).await
            }
            Step::Retire(machine) => self.retire(machine).await,
            Step::LetGo(machine) => self.let_go(machine).await,
            Step::Rewrite { machine, number, before } => self.rewrite(machine, *number, before.as_deref()).await,
            Step::Relabel { name, instance } => self.relabel(name, instance).await,
            Step::Restart { machine, instance, by_request: true } => self.ask_for_restart(machine, instance).await,
            Step::Restart { machine, instance, by_request: false } => self.end_instance(machine, instance).await,
        }
    }

    fn record(self, reason: Reason, note: String) {
        self.leader.context.record(&self.world.pool.object_ref(&()), NewEvent::normal(reason, note));
    }

    fn api<K: Kind>(self) -> Api<Cached<K>> {
        Api::namespaced(self.leader.context.client.clone(), self.namespace)
    }

    /// As the store has it; another of its name is not it.
    fn stored(self, machine: &Victim) -> Result<Arc<Cached<Machines>>, ReconcileError> {
        let found = self.leader.machines.named(self.namespace, &machine.name);
        found.filter(|found| found.meta().uid.as_ref() == Some(&machine.uid)).ok_or(ReconcileError::Overtaken)
    }

    async fn create(self, number: u32) -> Result<(), ReconcileError> {
        let machine = pool::machine(&self.world.pool, number);
        match unread::create(&self.leader.context.client, self.namespace, &made_by_us(), &machine).await {
            Ok(()) => {
                let name = pool::name(&self.world.pool, number);
                self.record(Reason::SuccessfulCreate, format!("created the VirtualMachine {name}"));
                Ok(())
            }
            // Whose it is the watch shows soon.
            Err(kube::Error::Api(status)) if status.is_already_exists() => Err(ReconcileError::Overtaken),
            Err(error) => Err(while_trying("create the VirtualMachine")(error)),
        }
    }

    /// That a machine has this instance still, if it has to have one: another one has other volumes, which are not to go.
    async fn is_run_by(self, machine: &Victim, instance: Option<&str>) -> Result<(), ReconcileError> {
        let Some(uid) = instance else { return Ok(()) };
        let found = self.api::<Instances>().get_opt(&machine.name).await;
        let found = found.map_err(while_trying("get the VirtualMachineInstance"))?;
        let is_the_same = found.is_some_and(|found| found.meta().uid.as_deref() == Some(uid));
        if is_the_same { Ok(()) } else { Err(ReconcileError::Overtaken) }
    }

    /// Its name is free when nothing is left that it owns. One that was written since it was seen may be another user's by now, or run.
    async fn delete(self, victim: &Victim, version: Option<String>, why: &str) -> Result<(), ReconcileError> {
        let Victim { name, uid } = victim;
        let only_this = Preconditions { uid: Some(uid.clone()), resource_version: version };
        let policy = Some(PropagationPolicy::Foreground);
        let params =
            DeleteParams { preconditions: Some(only_this), propagation_policy: policy, ..DeleteParams::default() };
        match self.api::<Machines>().delete(name, &params).await {
            Ok(_) => {
                self.record(Reason::SuccessfulDelete, format!("deleted the VirtualMachine {name}: {why}"));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
            Err(error) => Err(while_trying("delete the VirtualMachine")(error)),
        }
    }

    /// Stops and marks it in one write.
    async fn retire(self, machine: &Victim) -> Result<(), ReconcileError> {
        let stored = self.stored(machine)?;
        let pool = self.world.pool.metadata.name.as_deref();
        let metadata = json!({ "uid": machine.uid, "resourceVersion": stored.resource_version(),
            "annotations": { (annotation::LEAVES_POOL): pool } });
        let patch = json!({ "metadata": metadata, "spec": halted(&stored.raw()) });
        self.patch_machine(&machine.name, patch).await
    }

    /// Only once it is known that no guest of it runs: an instance that loses its owner runs on.
    async fn let_go(self, machine: &Victim) -> Result<(), ReconcileError> {
        let stored = self.stored(machine)?;
        let member = Member::of(&stored, None)?;
        let instance = self.api::<Instances>().get_opt(&machine.name).await;
        let instance = instance.map_err(while_trying("get the VirtualMachineInstance"))?;
        if instance.is_some() || !member.is_retired || !member.state.is_down {
            return Err(ReconcileError::Overtaken);
        }
        self.drop_records(&machine.uid).await;
        let only_this = Preconditions { uid: Some(machine.uid.clone()), resource_version: stored.resource_version() };
        let policy = Some(PropagationPolicy::Orphan);
        let params =
            DeleteParams { preconditions: Some(only_this), propagation_policy: policy, ..DeleteParams::default() };
        match self.api::<Machines>().delete(&machine.name, &params).await {
            Ok(_) => {
                let note = format!("deleted the VirtualMachine {}: too many; its volumes stay", machine.name);
                self.record(Reason::SuccessfulDelete, note);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
            Err(error) => Err(while_trying("delete the VirtualMachine")(error)),
        }
    }

    /// What the machine was when it was started, and copies of its instancetype and its preference, are of no use without it, and would
    /// stay with its volumes.
    async fn drop_records(self, uid: &str) {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.leader.context.client.clone(), self.namespace);
        for key in [label::REVISION_OF, label::COPY_FOR] {
            let of_machine = ListParams::default().labels(&format!("{key}={uid}"));
            if let Err(error) = revisions.delete_collection(&DeleteParams::default(), &of_machine).await {
                tracing::warn!(error = %ErrorChain(&error), uid, label = key, "ControllerRevisions of a machine could not be deleted");
            }
        }
    }

    async fn rewrite(self, machine: &Victim, number: u32, before: Option<&str>) -> Result<(), ReconcileError> {
        let stored = self.stored(machine)?;
        let wanted = pool::machine(&self.world.pool, number);
        let before = before.and_then(|name| self.world.records.get(name));
        let change = rewrite::patch(&stored.raw(), &wanted, before)
            .map_err(|error| while_trying("write the machine's template")(kube::Error::SerdeError(error)))?;
        let Some(mut patch) = change else { return Ok(()) };
        patch["metadata"]["uid"] = json!(machine.uid);
        patch["metadata"]["resourceVersion"] = json!(stored.resource_version());
        self.patch_machine(&machine.name, patch).await?;
        self.record(Reason::SuccessfulUpdate, format!("changed the VirtualMachine {}", machine.name));
        Ok(())
    }

    async fn patch_machine(self, name: &str, patch: Value) -> Result<(), ReconcileError> {
        let object = NamespacedName { namespace: self.namespace, name };
        let (client, params) = (&self.leader.context.client, PatchParams::default());
        match unread::patch::<Machines>(client, object, &params, &Patch::Merge(patch)).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
            Err(error) => Err(while_trying("change the VirtualMachine")(error)),
        }
    }

    async fn relabel(self, name: &str, instance: &str) -> Result<(), ReconcileError> {
        let labels = json!({ (label::POOL_REVISION): pool::revision_name(&self.world.pool) });
        let patch = Patch::Merge(json!({ "metadata": { "uid": instance, "labels": labels } }));
        let object = NamespacedName { namespace: self.namespace, name };
        let client = &self.leader.context.client;
        match unread::patch::<Instances>(client, object, &PatchParams::default(), &patch).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(while_trying("label the VirtualMachineInstance")(error)),
        }
    }

    /// Its controller makes another instance of what it is now.
    async fn end_instance(self, machine: &Victim, instance: &str) -> Result<(), ReconcileError> {
        let only_this = Preconditions { uid: Some(instance.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
        match self.api::<Instances>().delete(&machine.name, &params).await {
            Ok(_) => {
                self.record(Reason::SuccessfulUpdate, restarted(machine));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(while_trying("delete the VirtualMachineInstance")(error)),
        }
    }

    /// As a user asks for it. Where another request waits, that one comes first.
    async fn ask_for_restart(self, machine: &Victim, instance: &str) -> Result<(), ReconcileError> {
        let stored = self.stored(machine)?;
        let waits = stored.raw()["status"]["stateChangeRequests"].as_array().is_some_and(|all| !all.is_empty());
        if waits {
            return Ok(());
        }
        let requests = json!([{ "action": "Stop", "uid": instance }, { "action": "Start" }]);
        let metadata = json!({ "uid": machine.uid, "resourceVersion": stored.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata, "status": { "stateChangeRequests": requests } }));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let object = NamespacedName { namespace: self.namespace, name: &machine.name };
        match unread::patch_status::<Machines>(&self.leader.context.client, object, &params, &patch).await {
            Ok(()) => {
                self.record(Reason::SuccessfulUpdate, restarted(machine));
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => Err(ReconcileError::Overtaken),
            Err(error) => Err(while_trying("ask for a restart of the VirtualMachine")(error)),
        }
    }
}

fn restarted(machine: &Victim) -> String {
    format!("restarted the VirtualMachine {}: its template has changed", machine.name)
}

/// What halts a machine, in the form that it has: exactly one of the two fields.
fn halted(machine: &Value) -> Value {
    let spec = &machine["spec"];
    if spec["running"].is_boolean() && spec["runStrategy"].is_null() {
        json!({ "running": false })
    } else {
        json!({ "runStrategy": RunStrategy::Halted.name() })
    }
}
