//! What is offered, and what a container that asks for it gets. Pure.

use std::path::Path;

use garboard_api::metadata::device;
use garboard_host::devices::{KVM, TUN, VHOST_NET};
use garboard_protocol::pod::AGENT_DIRECTORY;

use crate::generated::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DeviceSpec, ListAndWatchResponse, Mount,
};

/// KubeVirt's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// `devices.kubevirt.io/kvm`: the device `/dev/kvm`.
    Kvm,
    /// `devices.kubevirt.io/tun`: the agent, which makes taps.
    Tun,
    /// `devices.kubevirt.io/vhost-net`: the agent, which hands out vhost-net descriptors.
    VhostNet,
}

/// Whether a node's device opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The device opens.
    Healthy,
    /// The device does not open, or is not there.
    Unhealthy,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kvm, Self::Tun, Self::VhostNet];

    /// The name that containers ask for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvm => device::KVM,
            Self::Tun => device::TUN,
            Self::VhostNet => device::VHOST_NET,
        }
    }

    /// The node's device behind it.
    #[must_use]
    pub const fn device(self) -> &'static str {
        match self {
            Self::Kvm => KVM,
            Self::Tun => TUN,
            Self::VhostNet => VHOST_NET,
        }
    }

    /// File name of the socket on which it is served.
    #[must_use]
    pub const fn socket(self) -> &'static str {
        match self {
            Self::Kvm => "garboard-kvm.sock",
            Self::Tun => "garboard-tun.sock",
            Self::VhostNet => "garboard-vhost-net.sock",
        }
    }

    /// The devices that are announced to the kubelet.
    #[must_use]
    pub fn offer(self, count: u32, health: Health) -> ListAndWatchResponse {
        let health = match health {
            Health::Healthy => "Healthy",
            Health::Unhealthy => "Unhealthy",
        };
        let kind = self.name().rsplit('/').next().unwrap_or_default();
        let device = |number| Device { id: format!("{kind}{number}"), health: health.to_owned(), topology: None };
        ListAndWatchResponse { devices: (0..count).map(device).collect() }
    }

    /// What a container gets that was given some of these devices.
    ///
    /// No device of the network: taps and vhost-net are made by the agent and arrive as descriptors, and a launcher could
    /// not open `/dev/net/tun` anyway.
    #[must_use]
    pub fn allocate(self, request: &AllocateRequest, agent_directory: &Path) -> AllocateResponse {
        let answer = match self {
            Self::Kvm => ContainerAllocateResponse {
                devices: vec![DeviceSpec {
                    container_path: KVM.to_owned(),
                    host_path: KVM.to_owned(),
                    permissions: "rw".to_owned(),
                }],
                ..ContainerAllocateResponse::default()
            },
            Self::Tun | Self::VhostNet => ContainerAllocateResponse {
                mounts: vec![Mount {
                    container_path: AGENT_DIRECTORY.to_owned(),
                    host_path: agent_directory.display().to_string(),
                    read_only: true,
                }],
                ..ContainerAllocateResponse::default()
            },
        };
        AllocateResponse { container_responses: vec![answer; request.container_requests.len()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::v1beta1::ContainerAllocateRequest;

    fn allocated(resource: Resource, containers: usize) -> Vec<ContainerAllocateResponse> {
        let one = ContainerAllocateRequest { devices_ids: vec!["kvm7".into()] };
        let request = AllocateRequest { container_requests: vec![one; containers] };
        resource.allocate(&request, "/run/garboard-agent/pod".as_ref()).container_responses
    }

    #[test]
    fn kvm_is_a_device_and_nothing_else() {
        let answers = allocated(Resource::Kvm, 1);
        assert_eq!(answers[0].devices.len(), 1);
        assert_eq!(answers[0].devices[0].permissions, "rw");
        assert!(answers[0].mounts.is_empty() && answers[0].envs.is_empty());
    }

    #[test]
    fn the_network_is_the_agent_and_no_device() {
        for resource in [Resource::Tun, Resource::VhostNet] {
            let answers = allocated(resource, 2);
            assert_eq!(answers.len(), 2);
            for answer in answers {
                assert!(answer.devices.is_empty());
                assert_eq!(answer.mounts[0].container_path, AGENT_DIRECTORY);
                assert_eq!(answer.mounts[0].host_path, "/run/garboard-agent/pod");
                assert!(answer.mounts[0].read_only);
            }
        }
    }

    #[test]
    fn devices_have_names_of_their_own_and_one_health() {
        let offer = Resource::VhostNet.offer(3, Health::Unhealthy);
        let names: Vec<_> = offer.devices.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(names, ["vhost-net0", "vhost-net1", "vhost-net2"]);
        assert!(offer.devices.iter().all(|device| device.health == "Unhealthy"));
        assert!(Resource::Kvm.offer(0, Health::Healthy).devices.is_empty());
    }
}
