//! The text of `/metrics`: what this replica counts, and the cluster's objects, if it leads.

use std::collections::BTreeSet;
use std::sync::Arc;

use garboard_api::cluster::Emulation;
use garboard_metrics::catalogue::controller as catalogue;
use garboard_metrics::catalogue::node::{INFO, REST_CLIENT_REQUESTS};
use garboard_metrics::{Exposition, Labels, as_float};

use super::instances::{self, InstanceView};
use super::machines::{self, MachineView};
use super::server::Serving;
use super::{Leading, Measured};
use crate::context::Context;

/// All of it. Reading ten thousand objects takes a second: not for a thread that serves others.
pub(super) fn text(serving: &Serving) -> String {
    let mut to = Exposition::default();
    of_replica(&mut to, serving);
    let measured = &serving.context.metrics;
    let stores = measured.stores();
    to.add(&catalogue::CONTROLLER_LEADING, &Labels::none(), if stores.is_some() { 1.0 } else { 0.0 });
    if let Some(stores) = stores {
        of_cluster(&mut to, &stores, measured);
        of_settings(&mut to, &serving.context);
    }
    to.text()
}

fn of_replica(to: &mut Exposition, serving: &Serving) {
    let none = Labels::none();
    to.add(&INFO, &Labels::of(&[("kubeversion", serving.context.version)]), 1.0);
    to.add(&catalogue::CONTROLLER_READY, &none, if serving.ready.is_ready() { 1.0 } else { 0.0 });
    to.add(&catalogue::CONNECTED_NODES, &none, as_float(serving.nodes.connected() as u64));
    let expires = *serving.expires.borrow();
    to.add(&catalogue::CERTIFICATE_EXPIRES, &none, expires);
    for (reason, count) in serving.refusals.counted() {
        to.add(&catalogue::SCRAPES_REFUSED, &Labels::of(&[("reason", reason)]), as_float(count));
    }
    let context = &serving.context;
    let work = |name| Labels::of(&[("name", name)]);
    // KubeVirt's names of the queues.
    let (reconciles, measured) = (&context.reconciles, &context.metrics);
    let queues = &measured.queues;
    for (name, durations, queue) in [
        ("virt-controller-vm", &reconciles.machines, &queues.machines),
        ("virt-controller-vmi", &reconciles.instances, &queues.instances),
        ("virt-controller-replicaset", &reconciles.replica_sets, &queues.replica_sets),
        ("virt-controller-pool", &reconciles.pools, &queues.pools),
    ] {
        to.add_histogram(&catalogue::WORKQUEUE_WORK_SECONDS, &work(name), &durations.histogram());
        queue.expose(to, name);
    }
    for (asked, count) in measured.requests.counted() {
        to.add(&REST_CLIENT_REQUESTS, &Labels::of(&asked.labels()), as_float(count));
    }
    measured.streams.add(to);
    let admissions = &measured.admissions;
    for (name, histogram) in
        [("mutate", &admissions.mutate), ("validate", &admissions.validate), ("evict", &admissions.evict)]
    {
        to.add_histogram(&catalogue::ADMISSION_SECONDS, &Labels::of(&[("webhook", name)]), &histogram.seen());
    }
}

fn of_settings(to: &mut Exposition, context: &Context) {
    let permitted = context.settings.borrow().config.emulation == Emulation::Permitted;
    to.add(&catalogue::EMULATION_ENABLED, &Labels::none(), if permitted { 1.0 } else { 0.0 });
}

fn of_cluster(to: &mut Exposition, stores: &Arc<Leading>, measured: &Measured) {
    let mut vms = stores.machines.store().state();
    vms.sort_by_cached_key(|each| each.key());
    for vm in vms.iter().filter_map(|each| each.read_part::<MachineView>().ok()) {
        machines::add(to, &vm);
    }
    // Before the store is read: of an instance that comes meanwhile the phase stays known.
    let known = measured.phases.known();
    let mut vmis = stores.instances.store().state();
    vmis.sort_by_cached_key(|each| each.key());
    let (mut outdated, mut uids) = (0_u64, BTreeSet::new());
    for vmi in vmis.iter().filter_map(|each| each.read_part::<InstanceView>().ok()) {
        let uid = vmi.metadata.uid.clone().unwrap_or_default();
        let pods = stores.pods.controlled_by(&uid);
        let pod = pods.first().map(|pod| pod.key().name).unwrap_or_default();
        instances::add(to, &vmi, &pod);
        outdated += u64::from(instances::is_outdated(&vmi));
        uids.insert(uid);
    }
    to.add(&catalogue::VMI_NUMBER_OF_OUTDATED, &Labels::none(), as_float(outdated));
    measured.phases.forget(known.iter().filter(|uid| !uids.contains(*uid)));
    measured.phases.add(to);
}
