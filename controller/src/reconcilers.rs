//! The reconcilers, and the watches that they share: one per kind.

use std::sync::Arc;

use futures::FutureExt;
use garboard_api::metadata::label;
use garboard_api::selector::{self, Labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::Api;
use kube::runtime::watcher::Config;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::metrics::{Leading, Measured};
use crate::reconciler::{self, Queue, Queued};
use crate::runs::RunsOver;
use crate::stores::{
    Cached, DataVolumes, Instances, Kind, Known, Machines, ObjectKey, Pods, Pools, ReplicaSets, StoreWriter, UNSERVED,
    VolumeClaims, Waiting,
};
use crate::vmi::history::PodHistories;
use crate::{pool, replica_set, runs, upgrade, vm, vmi};

/// What all reconcilers work with while this replica leads.
pub struct Leader {
    /// What every replica has.
    pub context: Context,
    /// VirtualMachines.
    pub machines: Known<Machines>,
    /// VirtualMachineInstances.
    pub instances: Known<Instances>,
    /// Launcher pods.
    pub pods: Known<Pods>,
    /// DataVolumes, as long as the cluster has them and they are watched.
    pub data_volumes: watch::Receiver<Option<Known<DataVolumes>>>,
    /// PersistentVolumeClaims.
    pub claims: Known<VolumeClaims>,
    /// Who waits for a claim, or for the DataVolume of its name.
    pub waiting: Waiting<Waiter>,
    /// What this leader remembers of pods.
    pub histories: PodHistories,
    /// Where runs are counted that are over, for their records.
    pub runs_over: RunsOver,
}

/// Which object waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Waiter {
    /// A VirtualMachine.
    Machine(ObjectKey),
    /// A VirtualMachineInstance.
    Instance(ObjectKey),
}

/// How many objects a page of a list has: a page is text and objects at once, and what a process takes for it once it may keep.
const PAGE: u32 = 100;

/// What is looked at when something changes.
#[derive(Clone)]
struct Queues {
    machines: Queue<Machines>,
    instances: Queue<Instances>,
    replica_sets: Queue<ReplicaSets>,
    known_sets: Known<ReplicaSets>,
    pools: Queue<Pools>,
    known_pools: Known<Pools>,
    launchers: upgrade::Changed,
    metrics: Arc<Measured>,
}

impl Queues {
    /// A pool looks at the machines that it controls, and at those without a controller that are named like its own.
    fn machine_changed(&self, object: &Cached<Machines>) {
        let ObjectKey { namespace, name } = object.key();
        self.machines.push(&namespace, &name);
        match object.controller() {
            Some(owner) if owner.kind == Pools::KIND => self.pools.push(&namespace, &owner.name),
            Some(_) => {}
            None => {
                let pool = name.rsplit_once('-').map(|(pool, _)| pool);
                let pool = pool.filter(|pool| self.known_pools.named(&namespace, pool).is_some());
                pool.into_iter().for_each(|pool| self.pools.push(&namespace, pool));
            }
        }
    }

    fn pool_changed(&self, object: &Cached<Pools>) {
        let ObjectKey { namespace, name } = object.key();
        self.pools.push(&namespace, &name);
    }

    fn set_changed(&self, object: &Cached<ReplicaSets>) {
        let ObjectKey { namespace, name } = object.key();
        self.replica_sets.push(&namespace, &name);
    }

    /// A machine looks at the instance that has its name, also if another client made it; a set at those that it controls, and at
    /// those without a controller that it selects.
    fn instance_changed(&self, object: &Cached<Instances>) {
        self.metrics.phases.changed(object);
        let ObjectKey { namespace, name } = object.key();
        self.instances.push(&namespace, &name);
        self.machines.push(&namespace, &name);
        match object.controller() {
            Some(owner) if owner.kind == ReplicaSets::KIND => self.replica_sets.push(&namespace, &owner.name),
            Some(_) => {}
            None => self.uncontrolled_changed(object),
        }
    }

    fn uncontrolled_changed(&self, object: &Cached<Instances>) {
        let namespace = object.key().namespace;
        let sets = self.known_sets.store().state();
        let mut sets = sets.iter().filter(|set| set.key().namespace == namespace).peekable();
        // Most namespaces have none.
        if sets.peek().is_none() {
            return;
        }
        let Ok(Labelled { metadata }) = object.read_part() else { return };
        sets.filter(|set| selects(set, &metadata.labels)).for_each(|set| self.set_changed(set));
    }

    fn pod_changed(&self, object: &Cached<Pods>) {
        let key = object.key();
        if let Some(owner) = of_kind(object.controller(), "VirtualMachineInstance") {
            self.instances.push(&key.namespace, &owner.name);
        }
        // It ends with the process; then nothing is left to be done.
        let _ = self.launchers.send(key);
    }

    /// A claim, or the DataVolume that fills it.
    fn storage_changed<K: Kind>(&self, waiting: &Waiting<Waiter>, object: &Cached<K>) {
        for waiter in waiting.woken(&object.key()) {
            match waiter {
                Waiter::Machine(key) => self.machines.push(&key.namespace, &key.name),
                Waiter::Instance(key) => self.instances.push(&key.namespace, &key.name),
            }
        }
    }
}

/// The labels of an object, and nothing else.
#[derive(Deserialize)]
struct Labelled {
    metadata: LabelledMetadata,
}

#[derive(Deserialize)]
struct LabelledMetadata {
    #[serde(default)]
    labels: Labels,
}

/// The selector of a set, and nothing else.
#[derive(Deserialize)]
struct Selecting {
    spec: SelectingSpec,
}

#[derive(Deserialize)]
struct SelectingSpec {
    selector: LabelSelector,
}

fn selects(set: &Cached<ReplicaSets>, labels: &Labels) -> bool {
    set.read_part().is_ok_and(|Selecting { spec }| selector::matches(&spec.selector, labels))
}

fn of_kind<'a>(owner: Option<&'a OwnerReference>, kind: &str) -> Option<&'a OwnerReference> {
    owner.filter(|owner| owner.kind == kind)
}

/// Sets of instances and pools of machines, which nothing else waits for: what is known of them, what fills it, what is to be looked at.
struct Groups {
    sets: (Known<ReplicaSets>, StoreWriter<ReplicaSets>, Queued<ReplicaSets>),
    pools: (Known<Pools>, StoreWriter<Pools>, Queued<Pools>),
}

impl Groups {
    /// Watches them, and reconciles them once everything else is `listed`.
    fn spawn(
        self,
        parts: &mut JoinSet<()>,
        queues: &Queues,
        leader: &Arc<Leader>,
        listed: impl Future<Output = ((), (), ())> + Clone + Send + 'static,
    ) {
        let Self { sets: (sets, set_filler, queued_sets), pools: (pools, pool_filler, queued_pools) } = self;
        let client = &leader.context.client;
        let (to, api) = (queues.clone(), Api::all(client.clone()));
        parts.spawn(async move { set_filler.follow(api, pages(), |each| to.set_changed(each)).await });
        let (to, api) = (queues.clone(), Api::all(client.clone()));
        parts.spawn(async move { pool_filler.follow(api, pages(), |each| to.pool_changed(each)).await });
        let (reconciler, ready) = (replica_set::Reconciler(leader.clone()), listed.clone());
        parts.spawn(async move {
            futures::join!(ready, sets.is_listed());
            reconciler::run(reconciler, sets, queued_sets).await;
        });
        let reconciler = pool::Reconciler(leader.clone());
        parts.spawn(async move {
            futures::join!(listed, pools.is_listed());
            reconciler::run(reconciler, pools, queued_pools).await;
        });
    }
}

/// Reconciles every VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet and VirtualMachinePool. Returns when one
/// of its parts has ended, which only a fault of this program brings about; when the future is dropped, all of them end.
pub async fn run(context: Context) {
    let client = context.client.clone();
    let ((machines, machine_filler), (instances, instance_filler), (pods, pod_filler)) =
        (Known::new(), Known::new(), Known::new());
    let counted = &context.metrics.queues;
    let ((machine_queue, queued_machines), (instance_queue, queued_instances)) =
        (Queue::new(&counted.machines), Queue::new(&counted.instances));
    let (launchers, changed_launchers) = upgrade::changes();
    let ((sets, set_filler), (pools, pool_filler)) = (Known::new(), Known::new());
    let ((set_queue, queued_sets), (pool_queue, queued_pools)) =
        (Queue::new(&counted.replica_sets), Queue::new(&counted.pools));
    let queues = Queues {
        machines: machine_queue,
        instances: instance_queue,
        replica_sets: set_queue,
        known_sets: sets.clone(),
        pools: pool_queue,
        known_pools: pools.clone(),
        launchers,
        metrics: Arc::clone(&context.metrics),
    };
    let groups = Groups { sets: (sets, set_filler, queued_sets), pools: (pools, pool_filler, queued_pools) };
    let (claims, claim_filler) = Known::<VolumeClaims>::new();
    let ((served, data_volumes), (runs_over, over)) = (watch::channel(None), runs::runs_over());
    let leader = Arc::new(Leader {
        context,
        machines: machines.clone(),
        instances: instances.clone(),
        pods: pods.clone(),
        data_volumes,
        claims,
        waiting: Waiting::default(),
        histories: PodHistories::beginning(jiff::Timestamp::now()),
        runs_over,
    });
    // Until this future ends, or is dropped.
    let stores = Leading { machines: machines.clone(), instances: instances.clone(), pods: pods.clone() };
    let _leads = leader.context.metrics.lead(stores);
    let mut parts = JoinSet::new();
    let (to, api) = (queues.clone(), Api::all(client.clone()));
    parts.spawn(async move { machine_filler.follow(api, pages(), |each| to.machine_changed(each)).await });
    let (to, api) = (queues.clone(), Api::all(client.clone()));
    parts.spawn(async move { instance_filler.follow(api, pages(), |each| to.instance_changed(each)).await });
    let launchers = pages().labels(&format!("{}=virt-launcher", label::COMPONENT));
    let (to, api) = (queues.clone(), Api::all(client.clone()));
    parts.spawn(async move { pod_filler.follow(api, launchers, |each| to.pod_changed(each)).await });
    // Its list is not waited for: what the store does not have is asked for.
    let (to, api, for_claims) = (queues.clone(), Api::all(client.clone()), leader.clone());
    let changed = move |each: &Cached<VolumeClaims>| to.storage_changed(&for_claims.waiting, each);
    parts.spawn(claim_filler.follow(api, pages(), changed));
    let listed = {
        let (machines, instances, pods) = (machines.clone(), instances.clone(), pods.clone());
        async move { futures::join!(machines.is_listed(), instances.is_listed(), pods.is_listed()) }.shared()
    };
    groups.spawn(&mut parts, &queues, &leader, listed.clone());
    parts.spawn(follow_data_volumes(leader.clone(), queues, served));
    let (reconciler, ready) = (vm::Reconciler(leader.clone()), listed.clone());
    parts.spawn(async move {
        ready.await;
        reconciler::run(reconciler, machines, queued_machines).await;
    });
    let (upgrading, ready) = (leader.clone(), listed.clone());
    parts.spawn(async move {
        ready.await;
        upgrade::run(upgrading, changed_launchers).await;
    });
    parts.spawn(runs::run(client, over));
    let reconciler = vmi::Reconciler(leader);
    parts.spawn(async move {
        listed.await;
        reconciler::run(reconciler, instances, queued_instances).await;
    });
    if let Some(Err(error)) = parts.join_next().await
        && let Ok(panic) = error.try_into_panic()
    {
        // All of them begin again.
        std::panic::resume_unwind(panic);
    }
}

fn pages() -> Config {
    Config::default().page_size(PAGE)
}

/// Watches DataVolumes where the cluster has them, and looks again now and then where it has not.
async fn follow_data_volumes(leader: Arc<Leader>, queues: Queues, served: watch::Sender<Option<Known<DataVolumes>>>) {
    loop {
        let (known, filler) = Known::new();
        let watched = known.clone();
        let send = async {
            watched.is_listed().await;
            served.send_replace(Some(watched));
            std::future::pending::<()>().await;
        };
        let api = Api::all(leader.context.client.clone());
        let changed = |each: &Cached<DataVolumes>| queues.storage_changed(&leader.waiting, each);
        tokio::select! {
            () = filler.follow_if_served(api, changed) => {}
            () = send => {}
        }
        served.send_replace(None);
        tokio::time::sleep(UNSERVED).await;
    }
}
