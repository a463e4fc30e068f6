//! Garboard's node agent, as far as the API server sees it: its watches, its writer, its account. One for each node, with a
//! token of the pod that its DaemonSet has there, so that rights and admission policies are those of a real one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use garboard_node::cluster::ApiServer;
use garboard_node::mirror::Mirror;
use garboard_node::pods::LauncherPod;
use garboard_node::run::{Vmis, watch_pods, watch_vmis};
use garboard_node::server::Reports;
use garboard_node::writer::{Writer, WriterContext};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::{nodes, report};

/// Namespace, and name of account and DaemonSet.
const INSTALLED: (&str, &str) = ("garboard", "garboard-node");
const COMPONENT: &str = "app.kubernetes.io/component=node";
/// How soon a guest runs in a pod that runs.
const BOOT: Duration = Duration::from_millis(100);
/// How long the DaemonSet may take for its pods.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays the agents of the nodes 1 to `number` until this process is ended.
pub(crate) async fn play(client: &Client, number: u16) -> anyhow::Result<()> {
    let mut parts = JoinSet::new();
    for number in 1..=number {
        let node = nodes::name(number);
        let own = client_of(client, &node).await.with_context(|| format!("act as the agent of {node}"))?;
        spawn(&mut parts, &own, node);
    }
    println!("ready");
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = parts.join_next() => bail!("a part of an agent has ended"),
    }
}

fn spawn(parts: &mut JoinSet<()>, client: &Client, node: String) {
    let pods: Arc<Mirror<LauncherPod>> = Arc::default();
    let vmis = Vmis::default();
    parts.spawn(watch_pods(client.clone(), node.clone(), pods.clone()));
    parts.spawn(watch_vmis(client.clone(), node.clone(), vmis.clone()));
    let cluster = ApiServer::new(client.clone(), &node);
    let writer =
        Writer::new(WriterContext { cluster, node, pods: pods.clone(), vmis: vmis.whole, pace: Arc::default() });
    parts.spawn(async move {
        let mut reported = HashSet::new();
        loop {
            tokio::time::sleep(BOOT).await;
            // A pod has an address as soon as it runs.
            for pod in pods.all().into_iter().filter(|pod| !pod.addresses.is_empty()) {
                if reported.insert(pod.vmi_uid.clone()) {
                    match report::of(&pod.namespace, &pod.vmi, &pod.vmi_uid) {
                        Ok(status) => writer.note(&pod, status),
                        Err(error) => tracing::error!(%error, "a report cannot be made"),
                    }
                }
            }
        }
    });
}

/// A client with the token of the agent's pod on a node.
async fn client_of(client: &Client, node: &str) -> anyhow::Result<Client> {
    let (namespace, account) = INSTALLED;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let here = ListParams::default().labels(COMPONENT).fields(&format!("spec.nodeName={node}"));
    let pod = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(pod) = pods.list(&here).await?.items.into_iter().next() {
                return anyhow::Ok(pod.metadata);
            }
            tokio::time::sleep(BOOT).await;
        }
    });
    let pod = pod.await.context("no pod of the DaemonSet is there")??;
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.name,
        uid: pod.uid,
    };
    let spec =
        TokenRequestSpec { audiences: Vec::new(), bound_object_ref: Some(bound), expiration_seconds: Some(36_000) };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let wanted = TokenRequest { metadata: Default::default(), spec, status: None };
    let issued = accounts.create_token_request(account, &PostParams::default(), &wanted).await?;
    let token = issued.status.context("no token was issued")?.token;
    let of_people = Config::infer().await?;
    let mut config = Config::new(of_people.cluster_url);
    config.root_cert = of_people.root_cert;
    config.auth_info.token = Some(token.into());
    Ok(garboard_cluster::client_of(config)?)
}
