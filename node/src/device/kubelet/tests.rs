use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::*;
use crate::generated::v1beta1::device_plugin_client::DevicePluginClient;
use crate::generated::v1beta1::registration_server::{Registration, RegistrationServer};
use crate::generated::v1beta1::{AllocateRequest, ContainerAllocateRequest, Empty};

/// A kubelet that notes which plugins registered.
struct Kubelet(mpsc::UnboundedSender<RegisterRequest>);

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let _ = self.0.send(request.into_inner());
        Ok(Response::new(Empty {}))
    }
}

/// Starts one as the real one does: the directory is emptied first.
fn start(directory: &Path) -> mpsc::UnboundedReceiver<RegisterRequest> {
    for file in std::fs::read_dir(directory).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let listener = UnixListener::bind(directory.join(KUBELET)).unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();
    let connections = futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    tokio::spawn(
        Server::builder().add_service(RegistrationServer::new(Kubelet(sender))).serve_with_incoming(connections),
    );
    receiver
}

async fn registrations(kubelet: &mut mpsc::UnboundedReceiver<RegisterRequest>) -> Vec<RegisterRequest> {
    let mut all = Vec::new();
    for _ in Resource::ALL {
        all.push(tokio::time::timeout(Duration::from_secs(60), kubelet.recv()).await.expect("registered").unwrap());
    }
    all
}

#[tokio::test]
async fn a_kubelet_gets_the_devices_and_gets_them_again_after_its_restart() {
    let place = tempfile::tempdir().unwrap();
    let (health, receiver) = watch::channel(Health::Healthy);
    let plugins = Plugins {
        directory: place.path().to_owned(),
        count: 3,
        agent_directory: "/run/garboard-agent/pod".into(),
        health: Resource::ALL.map(|resource| (resource, receiver.clone())).to_vec(),
    };
    let mut kubelet = start(place.path());
    let (registered, mut is_registered) = watch::channel(false);
    let serving = tokio::spawn(serve(plugins, registered));
    let all = registrations(&mut kubelet).await;
    assert!(all.iter().all(|one| one.version == "v1beta1"));
    let names: Vec<_> = all.iter().map(|one| one.resource_name.as_str()).collect();
    assert_eq!(names, ["devices.kubevirt.io/kvm", "devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net"]);
    is_registered.wait_for(|registered| *registered).await.unwrap();

    let address = format!("unix://{}", place.path().join(&all[0].endpoint).display());
    let mut plugin = DevicePluginClient::connect(address).await.unwrap();
    let mut offers = plugin.list_and_watch(Empty {}).await.unwrap().into_inner();
    let first = offers.message().await.unwrap().unwrap();
    assert_eq!((first.devices.len(), first.devices[0].health.as_str()), (3, "Healthy"));
    health.send_replace(Health::Unhealthy);
    assert_eq!(offers.message().await.unwrap().unwrap().devices[2].health, "Unhealthy");
    let container = ContainerAllocateRequest { devices_ids: vec!["kvm1".into()] };
    let given = plugin.allocate(AllocateRequest { container_requests: vec![container] }).await.unwrap().into_inner();
    assert_eq!(given.container_responses[0].devices[0].host_path, "/dev/kvm");

    let mut kubelet = start(place.path());
    assert_eq!(registrations(&mut kubelet).await.len(), 3);
    serving.abort();
}
