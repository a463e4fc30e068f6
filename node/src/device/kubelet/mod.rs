//! Serving the kubelet, and being registered with it, for as long as the agent lives. A kubelet that starts again deletes
//! every socket in its directory and forgets its plugins: then all of it is done again.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use garboard_protocol::causes::ErrorChain;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::{Endpoint, Server};

use super::plugin::Plugin;
use super::resource::{Health, Resource};
use super::watch::Directory;
use crate::generated::v1beta1::device_plugin_server::DevicePluginServer;
use crate::generated::v1beta1::registration_client::RegistrationClient;
use crate::generated::v1beta1::{DevicePluginOptions, RegisterRequest};

/// The kubelet's own socket.
const KUBELET: &str = "kubelet.sock";
const API_VERSION: &str = "v1beta1";
/// How long a kubelet may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after something failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What is served.
#[derive(Clone, Debug)]
pub struct Plugins {
    /// The kubelet's directory of sockets.
    pub directory: PathBuf,
    /// How many of each device there are.
    pub count: u32,
    /// What containers get mounted.
    pub agent_directory: PathBuf,
    /// How the devices are.
    pub health: Vec<(Resource, watch::Receiver<Health>)>,
}

/// Why the kubelet does not have the agent's devices.
#[derive(Debug, thiserror::Error)]
enum KubeletError {
    #[error("could not {doing} in the kubelet's directory")]
    Directory {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("could not reach the kubelet")]
    Unreachable(#[from] tonic::transport::Error),
    #[error("the kubelet rejected {resource}")]
    Refused {
        resource: &'static str,
        #[source]
        source: Box<tonic::Status>,
    },
}

/// Serves and registers until the task is dropped; `registered` is true when the kubelet has everything.
pub async fn serve(plugins: Plugins, registered: watch::Sender<bool>) {
    let mut logged = None;
    loop {
        let outcome = serve_kubelet(&plugins, &registered).await;
        registered.send_if_modified(|registered| std::mem::replace(registered, false));
        match outcome {
            Ok(()) => tracing::info!("kubelet restarted"),
            Err(error) => {
                // A kubelet may be away for long: the same error is logged once.
                let error = ErrorChain(&error).to_string();
                if logged.as_ref() != Some(&error) {
                    tracing::warn!(error, "registration of the device plugins failed; tried again");
                }
                logged = Some(error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        logged = None;
    }
}

/// Serves one life of the kubelet.
async fn serve_kubelet(plugins: &Plugins, registered: &watch::Sender<bool>) -> Result<(), KubeletError> {
    // Watched before anything is made there: what happens meanwhile is not missed.
    let mut directory = Directory::watch(&plugins.directory).map_err(failed("watch"))?;
    let mut services = JoinSet::new();
    for (resource, health) in &plugins.health {
        let plugin = Plugin {
            resource: *resource,
            count: plugins.count,
            agent_directory: plugins.agent_directory.clone(),
            health: health.clone(),
        };
        let listener = listen(&plugins.directory.join(resource.socket())).map_err(failed("listen"))?;
        let connections = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let service = Server::builder().add_service(DevicePluginServer::new(plugin));
        services.spawn(service.serve_with_incoming(connections));
    }
    let ours = identities(plugins).map_err(failed("find our sockets"))?;
    for (resource, _) in &plugins.health {
        register(&plugins.directory, *resource).await?;
    }
    tracing::info!(devices = plugins.count, "device plugins registered with the kubelet");
    registered.send_replace(true);
    let kubelet = identity(&plugins.directory.join(KUBELET)).ok();
    loop {
        directory.changed().await.map_err(failed("watch"))?;
        let same = identity(&plugins.directory.join(KUBELET)).ok() == kubelet;
        if !same || identities(plugins).ok().as_ref() != Some(&ours) {
            return Ok(());
        }
    }
}

async fn register(directory: &Path, resource: Resource) -> Result<(), KubeletError> {
    let address = format!("unix://{}", directory.join(KUBELET).display());
    let channel = Endpoint::from_shared(address)?.connect_timeout(PATIENCE).timeout(PATIENCE).connect().await?;
    let request = RegisterRequest {
        version: API_VERSION.to_owned(),
        endpoint: resource.socket().to_owned(),
        resource_name: resource.name().to_owned(),
        options: Some(DevicePluginOptions::default()),
    };
    let taken = RegistrationClient::new(channel).register(request).await;
    taken.map_err(|status| KubeletError::Refused { resource: resource.name(), source: Box::new(status) })?;
    Ok(())
}

/// The kubelet's directory belongs to root alone: whatever has this name is an earlier agent's.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Which file is at a path: a socket that was created again is another.
fn identity(path: &Path) -> io::Result<(u64, u64, i64, i64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
}

fn identities(plugins: &Plugins) -> io::Result<Vec<(u64, u64, i64, i64)>> {
    plugins.health.iter().map(|(resource, _)| identity(&plugins.directory.join(resource.socket()))).collect()
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> KubeletError {
    move |source| KubeletError::Directory { doing, source }
}

#[cfg(test)]
mod tests;
