//! A node's containerd (configuration version 3) and its registries.

use std::path::Path;

use super::{ConfigFile, flags, text};
use crate::layout::{HOST_ADDRESS, Layout, NodeNumber};

/// The image that holds a pod's namespaces; `scripts/fetch-cluster` makes it.
pub const PAUSE_IMAGE: &str = "registry.garboard.dev/cluster-pause:1";
/// Port of a registry that a test may run on the host.
pub const REGISTRY_PORT: u16 = 5000;

/// Its arguments.
pub fn arguments(layout: &Layout, node: NodeNumber) -> Vec<String> {
    flags(&[("config", text(&layout.node_file(node, "containerd.toml")))])
}

/// What it reads.
pub fn files(layout: &Layout, programs: &Path, node: NodeNumber) -> [ConfigFile; 1] {
    let content = configuration(layout, programs, node);
    [ConfigFile { path: layout.node_file(node, "containerd.toml"), content }]
}

fn configuration(layout: &Layout, programs: &Path, node: NodeNumber) -> String {
    let registries = text(&layout.registries());
    let networks = text(&layout.node_file(node, "cni"));
    let programs = text(programs);
    format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.images".registry]
config_path = "{registries}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE no process may lower a score.
restrict_oom_score_adj = true
# A device of a pod belongs to the pod's user.
device_ownership_from_security_context = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{programs}"]
conf_dir = "{networks}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{programs}/runc"
SystemdCgroup = false
"#
    )
}

/// Registries without TLS on the host's port 5000: called by the address that nodes see, and by the name that the host
/// itself would use. More can be put beside them while the cluster runs.
pub fn registries(layout: &Layout) -> Vec<ConfigFile> {
    let server = format!("http://{HOST_ADDRESS}:{REGISTRY_PORT}");
    let content = format!("server = \"{server}\"\n\n[host.\"{server}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    [HOST_ADDRESS.to_string(), "localhost".to_owned(), "127.0.0.1".to_owned()]
        .iter()
        .map(|host| ConfigFile {
            path: layout.registries().join(format!("{host}:{REGISTRY_PORT}")).join("hosts.toml"),
            content: content.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_our_runc_plugins_and_pause_image() {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        let [file] = files(&layout, Path::new("/opt/programs"), NodeNumber::new(1).unwrap());
        for wanted in [
            "BinaryName = \"/opt/programs/runc\"",
            "bin_dirs = [\"/opt/programs\"]",
            "sandbox = \"registry.garboard.dev/cluster-pause:1\"",
            "conf_dir = \"/run/garboard-cluster/main/nodes/node-1/cni\"",
        ] {
            assert!(file.content.contains(wanted), "{wanted} is not in {}", file.content);
        }
    }

    #[test]
    fn the_hosts_registry_has_the_names_people_use() {
        let layout = Layout::new("main".parse().unwrap(), None).unwrap();
        let places: Vec<String> = registries(&layout).iter().map(|file| file.path.display().to_string()).collect();
        assert!(places.contains(&"/run/garboard-cluster/main/registries/localhost:5000/hosts.toml".to_owned()));
        assert!(places.contains(&"/run/garboard-cluster/main/registries/172.30.0.1:5000/hosts.toml".to_owned()));
    }
}
