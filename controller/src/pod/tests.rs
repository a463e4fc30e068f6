use garboard_api::cluster::Gate;
use garboard_api::{Identity, default_vmi};
use garboard_protocol::pod::PodOrder;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};

use super::*;

/// An instance with these volumes, and whatever else is in `spec`.
fn instance(volumes: &Value, spec: &Value) -> VirtualMachineInstance {
    let disks: Vec<Value> =
        volumes.as_array().unwrap().iter().map(|volume| json!({ "name": volume["name"] })).collect();
    let mut manifest = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm", "namespace": "tenant", "uid": "c0ffee00-0000-4000-8000-000000000001" },
        "spec": { "domain": { "devices": { "disks": disks }, "memory": { "guest": "128Mi" } }, "volumes": volumes }
    });
    for (key, value) in spec.as_object().unwrap() {
        if key == "domain" {
            for (part, value) in value.as_object().unwrap() {
                manifest["spec"]["domain"][part] = value.clone();
            }
        } else {
            manifest["spec"][key] = value.clone();
        }
    }
    let mut vmi = serde_json::from_value(manifest).unwrap();
    default_vmi(&mut vmi, &ClusterConfig::offline(), &Identity { firmware_uuid: uuid::Uuid::nil() });
    vmi
}

fn made_with(config: &ClusterConfig, volumes: &Value, spec: &Value) -> Result<Pod, PodRefusal> {
    let vmi = instance(volumes, spec);
    let image = LauncherImage { reference: "launcher".to_owned(), pull_policy: "Never".to_owned() };
    launcher_pod(&PodInput { vmi: &vmi, claims: &BTreeMap::new(), launcher_image: &image, config })
}

fn made(volumes: &Value, spec: &Value) -> Pod {
    made_with(&ClusterConfig::offline(), volumes, spec).unwrap()
}

/// The annotations of the pod of an instance with these.
fn made_of(annotations: Value) -> BTreeMap<String, String> {
    let mut vmi = instance(&json!([]), &json!({}));
    vmi.metadata.annotations = serde_json::from_value(annotations).unwrap();
    let (image, config) =
        (LauncherImage { reference: "launcher".to_owned(), pull_policy: "Never".to_owned() }, ClusterConfig::offline());
    let claims = BTreeMap::new();
    let pod = launcher_pod(&PodInput { vmi: &vmi, claims: &claims, launcher_image: &image, config: &config });
    pod.unwrap().metadata.annotations.unwrap()
}

fn spec(pod: &Pod) -> &PodSpec {
    pod.spec.as_ref().unwrap()
}

fn order(pod: &Pod) -> PodOrder {
    let annotations = pod.metadata.annotations.as_ref().unwrap();
    serde_json::from_str(&annotations[garboard_protocol::pod::ORDER_ANNOTATION]).unwrap()
}

/// The pod's volume of that name as JSON, and where the sidecar has it.
fn volume(pod: &Pod, name: &str) -> (Value, String) {
    let volume = spec(pod).volumes.iter().flatten().find(|volume| volume.name == name).unwrap();
    let sidecar = container(pod, "launcher");
    let mount = sidecar.volume_mounts.as_ref().unwrap().iter().find(|mount| mount.name == name).unwrap();
    (serde_json::to_value(volume).unwrap(), mount.mount_path.clone())
}

fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    let all = spec(pod).init_containers.iter().flatten().chain(&spec(pod).containers);
    all.into_iter().find(|container| container.name == name).unwrap()
}

fn place(pod: &Pod, name: &str) -> Value {
    serde_json::to_value(&order(pod).volumes.places[name]).unwrap()
}

#[test]
fn the_supervisor_learns_by_how_much_the_memory_beside_the_guests_is_multiplied() {
    let config = ClusterConfig { overhead_permille: 1250, ..ClusterConfig::offline() };
    let pod = made_with(&config, &json!([]), &json!({})).unwrap();
    assert_eq!(order(&pod).overhead_permille, Some(1250));
    assert_eq!(order(&made(&json!([]), &json!({}))).overhead_permille, Some(1000));
}

#[test]
fn qemu_is_not_where_the_supervisor_keeps_its_files() {
    let pod = made(&json!([]), &json!({}));
    let places = |name: &str| -> Vec<String> {
        container(&pod, name).volume_mounts.iter().flatten().map(|mount| mount.mount_path.clone()).collect()
    };
    assert_eq!(places("compute"), ["/run/garboard/init"]);
    assert_eq!(places("launcher")[..2], ["/run/garboard", "/run/garboard/init"]);
    let command = container(&pod, "compute").command.clone().unwrap();
    assert_eq!(command[..2], ["/usr/bin/garboard-init", "/run/garboard/init"]);
    assert_eq!(command[4..], ["--uid", "c0ffee00-0000-4000-8000-000000000001"], "it is found on its node");
}

#[test]
fn a_container_disk_is_an_image_volume_where_there_are_any() {
    let disk = json!([{ "name": "root", "containerDisk": { "image": "guest:1" } }]);
    let pod = made(&disk, &json!({}));
    let (volume, path) = volume(&pod, "root");
    assert_eq!(volume["image"]["reference"], "guest:1");
    assert_eq!(place(&pod, "root"), json!({ "place": "directory", "path": path }));
    assert_eq!(spec(&pod).init_containers.as_ref().unwrap().len(), 1);
}

#[test]
fn a_container_disk_is_opened_in_its_own_container_where_there_are_none() {
    let config = ClusterConfig::offline().without(Gate::ImageVolume);
    let long = "a".repeat(60);
    let disks = json!([
        { "name": "root", "containerDisk": { "image": "guest:1", "path": "/other/disk.img" } },
        { "name": long, "containerDisk": { "image": "data:1" } }
    ]);
    let kernel = json!({ "container": { "image": "boot:1", "kernelPath": "/vmlinuz", "initrdPath": "/initrd" } });
    let pod = made_with(&config, &disks, &json!({ "domain": { "firmware": { "kernelBoot": kernel } } })).unwrap();
    let init = spec(&pod).init_containers.as_ref().unwrap();
    let names: Vec<_> = init.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["garboard-container-disk", "volumeroot", "volume-1", "volume-2", "launcher"]);
    let root = container(&pod, "volumeroot");
    assert_eq!((root.image.as_deref(), root.restart_policy.as_deref()), (Some("guest:1"), Some("Always")));
    let command = root.command.as_ref().unwrap();
    assert_eq!(command[..2], ["/run/garboard-container-disk/garboard-container-disk", "--open"]);
    assert_eq!(command[2..], ["/run/garboard-disks/1.sock", "/other/disk.img"]);
    assert_eq!(container(&pod, "volume-1").command.as_ref().unwrap()[2..], ["/run/garboard-disks/2.sock", ""]);
    assert_eq!(
        container(&pod, "volume-2").command.as_ref().unwrap()[3..].concat(),
        "/vmlinuz/run/garboard-disks/4.sock/initrd"
    );
    assert_eq!(place(&pod, "root"), json!({ "place": "handed", "socket": "/run/garboard-disks/1.sock" }));
    assert_eq!(place(&pod, "kernel-boot/file/initrd")["socket"], "/run/garboard-disks/4.sock");
    assert!(spec(&pod).volumes.iter().flatten().all(|volume| volume.image.is_none()));
    for container in init {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.read_only_root_filesystem, Some(true), "{}", container.name);
        assert_eq!(context.capabilities.as_ref().unwrap().drop.as_ref().unwrap()[..], ["ALL"], "{}", container.name);
    }
}

#[test]
fn a_token_is_the_sidecars_alone() {
    let pod = made(&json!([{ "name": "sa", "serviceAccount": { "serviceAccountName": "robot" } }]), &json!({}));
    assert_eq!(spec(&pod).service_account_name.as_deref(), Some("robot"));
    assert_eq!(spec(&pod).automount_service_account_token, Some(false));
    let (volume, path) = volume(&pod, "sa");
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0]["serviceAccountToken"]["path"], "token");
    assert_eq!(sources[1]["configMap"]["items"][0]["path"], "ca.crt");
    assert_eq!(sources[2]["downwardAPI"]["items"][0]["path"], "namespace");
    assert_eq!(place(&pod, "sa")["path"], path);
}

#[test]
fn files_come_from_their_source_in_the_manifest() {
    let volumes = json!([
        { "name": "labels", "downwardAPI": { "fields": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
        { "name": "answers", "sysprep": { "configMap": { "name": "unattend" } } },
        { "name": "seed", "cloudInitNoCloud": {
            "secretRef": { "name": "user" }, "networkDataSecretRef": { "name": "network" } } },
        { "name": "optional", "secret": { "secretName": "perhaps", "optional": true } }
    ]);
    let key = |secret: &str| {
        json!({ "sshPublicKey": {
        "source": { "secret": { "secretName": secret } }, "propagationMethod": { "noCloud": {} } } })
    };
    let password = json!({ "userPassword": {
        "source": { "secret": { "secretName": "a" } }, "propagationMethod": { "qemuGuestAgent": {} } } });
    let pod = made(&volumes, &json!({ "accessCredentials": [key("b"), password, key("a"), key("b")] }));
    assert_eq!(volume(&pod, "labels").0["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"], "metadata.labels");
    assert_eq!(volume(&pod, "answers").0["configMap"]["name"], "unattend");
    assert_eq!(volume(&pod, "seed").0["secret"]["secretName"], "user");
    assert_eq!(volume(&pod, "optional").0["secret"]["optional"], true);
    let (network, path) = volume(&pod, "garboard-network-data-2");
    assert_eq!(network["secret"]["secretName"], "network");
    assert_eq!(place(&pod, "network-data/seed")["path"], path);
    assert_eq!(place(&pod, "ssh-keys/a")["path"], volume(&pod, "garboard-ssh-keys-0").1);
    assert_eq!(volume(&pod, "garboard-ssh-keys-1").0["secret"]["secretName"], "b");
    let (secret, path) = volume(&pod, "garboard-passwords-0");
    assert_eq!((&secret["secret"]["secretName"], &place(&pod, "passwords/a")["path"]), (&json!("a"), &json!(path)));
    // QEMU's container has none of them: only the supervisor reads them.
    let compute = serde_json::to_value(&pod).unwrap()["spec"]["containers"][0]["volumeMounts"].to_string();
    assert!(!compute.contains("passwords") && !compute.contains("ssh-keys"), "{compute}");
}

#[test]
fn a_disk_of_the_node_is_the_file_or_its_directory() {
    let disk = |kind: &str, capacity: Option<&str>| {
        json!([{ "name": "host", "hostDisk": {
        "path": "/data/vms/disk.raw", "type": kind, "capacity": capacity } }])
    };
    let pod = made(&disk("Disk", None), &json!({}));
    let (volume_of_file, path) = volume(&pod, "host");
    assert_eq!(volume_of_file["hostPath"], json!({ "path": "/data/vms/disk.raw", "type": "File" }));
    assert_eq!(place(&pod, "host"), json!({ "place": "file", "path": path }));
    assert!(order(&pod).images.is_empty());
    let pod = made(&disk("DiskOrCreate", Some("1Gi")), &json!({}));
    let (directory, path) = volume(&pod, "host");
    assert_eq!(directory["hostPath"], json!({ "path": "/data/vms", "type": "DirectoryOrCreate" }));
    assert_eq!(place(&pod, "host"), json!({ "place": "directory", "path": path }));
    let image = &order(&pod).images[0];
    assert_eq!((image.file.as_str(), image.bytes), ("disk.raw", 1 << 30));
}

#[test]
fn a_host_disk_that_makes_no_sense_is_refused_by_its_path() {
    let disk = |path: &str, kind: &str| json!([{ "name": "host", "hostDisk": { "path": path, "type": kind } }]);
    for (disk, field) in [
        (disk("/disk.raw", "Disk"), "spec.volumes[0].hostDisk.path"),
        (disk("/data/", "Disk"), "spec.volumes[0].hostDisk.path"),
        (disk("/data/disk.raw", "DiskOrCreate"), "spec.volumes[0].hostDisk.capacity"),
    ] {
        let refusal = made_with(&ClusterConfig::offline(), &disk, &json!({})).unwrap_err();
        assert!(refusal.to_string().starts_with(field), "{refusal}");
    }
}

#[test]
fn what_is_not_supported_is_refused_by_its_path() {
    let refusal = made_with(&ClusterConfig::offline(), &json!([]), &json!({ "architecture": "arm64" }));
    let text = refusal.unwrap_err().to_string();
    assert!(text.starts_with("spec.architecture: "), "{text}");
}

#[test]
fn velero_runs_our_hooks_in_the_container_of_qemu_unless_the_instance_skips_them() {
    let hooks = |annotations: Value| -> BTreeMap<String, String> {
        let mut all = made_of(annotations);
        all.retain(|key, _| key.contains("hook.backup.velero.io/"));
        all
    };
    let command = |step: &str| format!(r#"["/usr/bin/garboard-launcher","--backup-hook","{step}"]"#);
    let expected = [
        ("post.hook.backup.velero.io/command", command("thaw")),
        ("post.hook.backup.velero.io/container", "compute".to_owned()),
        ("pre.hook.backup.velero.io/command", command("freeze")),
        ("pre.hook.backup.velero.io/container", "compute".to_owned()),
        ("pre.hook.backup.velero.io/timeout", "60s".to_owned()),
    ];
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let skip = |value: &str| json!({ "kubevirt.io/skip-backup-hooks": value });
    // The values are those of Go's `strconv.ParseBool`.
    for wanted in [json!({}), skip("false"), skip("0"), skip("yes"), skip("")] {
        assert_eq!(hooks(wanted.clone()), expected, "{wanted}");
    }
    for skipped in ["true", "True", "TRUE", "1", "t", "T"] {
        assert_eq!(hooks(skip(skipped)), BTreeMap::new(), "{skipped}");
    }
    // Those of the instance are replaced, or else left.
    let own = json!({ "pre.hook.backup.velero.io/command": "own", "kubevirt.io/skip-backup-hooks": "true" });
    assert_eq!(hooks(own).values().collect::<Vec<_>>(), ["own"]);
    assert_eq!(hooks(json!({ "pre.hook.backup.velero.io/command": "own" })), expected);
}

#[test]
fn probes_are_those_of_compute() {
    let probes = json!({
        "livenessProbe": { "exec": { "command": ["sh", "-c", "true"] }, "timeoutSeconds": 3 },
        "readinessProbe": { "tcpSocket": { "port": 22 }, "initialDelaySeconds": 5 }
    });
    let pod = made(&json!([]), &probes);
    let compute = container(&pod, "compute");
    let alive = compute.liveness_probe.as_ref().unwrap();
    let command = alive.exec.as_ref().unwrap().command.as_ref().unwrap();
    assert_eq!(command[..], ["/usr/bin/garboard-launcher", "--probe", "3", "exec", "--", "sh", "-c", "true"]);
    assert_eq!((alive.timeout_seconds, alive.initial_delay_seconds), (Some(4), Some(10)));
    let ready = compute.readiness_probe.as_ref().unwrap();
    assert_eq!((ready.timeout_seconds, ready.initial_delay_seconds), (Some(1), Some(15)));
    assert!(ready.tcp_socket.is_some() && ready.exec.is_none());
}

#[test]
fn a_guaranteed_machine_is_a_guaranteed_pod() {
    let both = json!({ "cpu": "1", "memory": "128Mi" });
    let resources = json!({ "resources": { "requests": both, "limits": both } });
    let config = ClusterConfig::offline().without(Gate::ImageVolume);
    let disk = json!([{ "name": "root", "containerDisk": { "image": "guest:1" } }]);
    let pod = made_with(&config, &disk, &json!({ "domain": resources })).unwrap();
    for container in spec(&pod).init_containers.iter().flatten().chain(&spec(&pod).containers) {
        let resources = container.resources.as_ref().unwrap();
        for name in ["cpu", "memory"] {
            let value = |amounts: &Option<BTreeMap<String, _>>| -> garboard_api::Quantity {
                let amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity = &amounts.as_ref().unwrap()[name];
                amount.0.parse().unwrap()
            };
            assert_eq!(value(&resources.requests), value(&resources.limits), "{} {name}", container.name);
        }
    }
    let free = made(&disk, &json!({}));
    assert!(!container(&free, "launcher").resources.as_ref().unwrap().limits.as_ref().unwrap().contains_key("memory"));
}

#[test]
fn what_a_guest_can_write_is_bounded_and_counted() {
    let disks = json!([
        { "name": "root", "containerDisk": { "image": "guest:1" } },
        { "name": "more", "emptyDisk": { "capacity": "8Gi" } }
    ]);
    let devices = json!({ "disks": [
        { "name": "root", "disk": { "bus": "virtio" } }, { "name": "more", "disk": { "bus": "virtio" } }
    ] });
    let bytes = |text: &str| text.parse::<garboard_api::Quantity>().unwrap().to_bytes().unwrap();
    let amounts = |resources: serde_json::Value| {
        let pod = made(&disks, &json!({ "domain": { "devices": devices, "resources": resources } }));
        let resources = container(&pod, "compute").resources.clone().unwrap();
        let of = |amounts: &Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
            amounts.as_ref()?.get("ephemeral-storage").map(|amount| bytes(&amount.0))
        };
        let size = volume(&pod, "garboard-scratch").0["emptyDir"]["sizeLimit"].as_str().map(bytes).unwrap();
        (of(&resources.requests), of(&resources.limits), size)
    };
    let (request, limit, size) = amounts(json!({}));
    assert_eq!((request, limit), (Some(50_000_000), None), "a LimitRange may set it");
    assert!(size > 136 << 30, "{size}");
    let (request, limit, size) = amounts(json!({ "requests": { "ephemeral-storage": "2Gi" },
        "limits": { "ephemeral-storage": "16Gi" } }));
    assert_eq!((request, limit), (Some((2 << 30) + 50_000_000), Some((16 << 30) + 50_000_000)));
    assert!(size < 25 << 30, "{size}");
    for name in ["garboard-run", "garboard-init"] {
        let volume = volume(&made(&disks, &json!({})), name).0;
        assert!(volume["emptyDir"]["sizeLimit"].is_string(), "{volume}");
    }
}

#[test]
fn huge_pages_are_asked_for_as_such() {
    let pages = json!({ "domain": { "memory": { "guest": "128Mi", "hugepages": { "pageSize": "2Mi" } } } });
    let pod = made(&json!([]), &pages);
    let resources = container(&pod, "compute").resources.as_ref().unwrap();
    for amounts in [&resources.requests, &resources.limits] {
        assert_eq!(amounts.as_ref().unwrap()["hugepages-2Mi"].0, (128 << 20).to_string());
    }
    // The scheduler says that no node has these.
    let odd = json!({ "domain": { "memory": { "guest": "66Mi", "hugepages": { "pageSize": "3Mi" } } } });
    let pod = made(&json!([]), &odd);
    let requests = container(&pod, "compute").resources.as_ref().unwrap().requests.as_ref().unwrap();
    assert_eq!(requests["hugepages-3Mi"].0, (66 << 20).to_string());
}

#[test]
fn variables_of_the_firmware_are_in_a_claim_of_their_own() {
    let efi = json!({"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false, "persistent": true}}}}});
    let pod = made(&json!([]), &efi);
    let (claim, path) = volume(&pod, "garboard-state");
    assert_eq!(claim["persistentVolumeClaim"]["claimName"], "persistent-state-for-vm");
    let place = &order(&pod).volumes.places[garboard_protocol::volumes::FIRMWARE_VARS_VOLUME];
    assert_eq!(*place, garboard_protocol::agent::VolumePlace::Directory { path });
}

#[test]
fn the_settings_of_the_cluster_decide_what_is_asked_and_pulled() {
    let config = ClusterConfig { cpu_allocation_ratio: 4, ..ClusterConfig::offline() };
    let pod = made_with(&config, &json!([]), &json!({})).unwrap();
    let compute = container(&pod, "compute");
    assert_eq!(compute.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0, "250m");
    assert_eq!(compute.image_pull_policy.as_deref(), Some("Never"), "as the image has it");
}

#[test]
fn what_an_earlier_start_decided_reaches_the_launcher() {
    let stored = json!({"machineType": "pc-q35-7.2"});
    let (none, config) = (json!([]), ClusterConfig::offline());
    assert_eq!(order(&made(&none, &json!({}))).stored, None);
    let mut vmi = instance(&none, &json!({}));
    vmi.status.get_or_insert_default().stored_machine = Some(stored.clone());
    let image = LauncherImage { reference: "launcher".to_owned(), pull_policy: "Never".to_owned() };
    let input = PodInput { vmi: &vmi, claims: &BTreeMap::new(), launcher_image: &image, config: &config };
    assert_eq!(order(&launcher_pod(&input).unwrap()).stored, Some(stored));
}

#[test]
fn what_kubectl_remembers_of_a_manifest_is_left_out() {
    let mut vmi = instance(&json!([]), &json!({}));
    let annotations = [
        ("kubectl.kubernetes.io/last-applied-configuration", "MANIFEST"),
        ("kubevirt.io/latest-observed-api-version", "v1"),
        ("kubevirt.io/storage-observed-api-version", "v1"),
        ("kept", "1"),
    ];
    vmi.metadata.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let image = LauncherImage { reference: "launcher".to_owned(), pull_policy: "Never".to_owned() };
    let config = ClusterConfig::offline();
    let input = PodInput { vmi: &vmi, claims: &BTreeMap::new(), launcher_image: &image, config: &config };
    let pod = launcher_pod(&input).unwrap();
    assert!(!serde_json::to_string(&pod).unwrap().contains("MANIFEST"));
    let mut keys = pod.metadata.annotations.as_ref().unwrap().keys();
    assert!(!keys.any(|key| key.ends_with("observed-api-version")), "they are about the instance");
    assert_eq!(order(&pod).vmi["metadata"]["annotations"]["kept"], "1");
}

#[test]
fn annotations_of_our_domain_on_a_pod_are_the_controllers_own() {
    let mut vmi = instance(&json!([]), &json!({}));
    let annotations =
        ["garboard.dev/claims", "garboard.dev/x", "garboard.dev/accelerator", "garboard.dev/trace", "kept"];
    vmi.metadata.annotations = Some(annotations.map(|key| (key.to_owned(), "theirs".to_owned())).into());
    let image = LauncherImage { reference: "launcher".to_owned(), pull_policy: "Never".to_owned() };
    let config = ClusterConfig::offline();
    let input = PodInput { vmi: &vmi, claims: &BTreeMap::new(), launcher_image: &image, config: &config };
    let pod = launcher_pod(&input).unwrap();
    let on_the_pod = pod.metadata.annotations.as_ref().unwrap();
    let theirs: Vec<_> = on_the_pod.iter().filter(|(_, value)| *value == "theirs").map(|(key, _)| key).collect();
    // To which trace the agent's spans belong decides nothing.
    assert_eq!(theirs, ["garboard.dev/trace", "kept"]);
    // The supervisor reads what executes the guest's instructions in the instance of its order.
    assert_eq!(order(&pod).vmi["metadata"]["annotations"]["garboard.dev/accelerator"], "theirs");
}

#[test]
fn a_gate_that_was_closed_after_admission_is_closed_for_the_pod() {
    let disk = json!([{"name": "d", "hostDisk": {"path": "/data/disk.img", "type": "Disk"}}]);
    assert!(made_with(&ClusterConfig::offline(), &disk, &json!({})).is_ok());
    let refusal = made_with(&ClusterConfig::offline().without(Gate::HostDisk), &disk, &json!({})).unwrap_err();
    assert!(matches!(refusal, PodRefusal::NotAdmitted(_)), "{refusal}");
    assert!(refusal.to_string().starts_with("spec.volumes[0]"), "{refusal}");
    assert_eq!(refusal.reason().name(), "FailedCreate");
}

#[test]
fn resources_of_others_are_asked_for_as_they_are_written() {
    let asked = json!({ "domain": { "resources": {
        "requests": { "memory": "256Mi", "example.com/fpga": "2", "hugepages-2Mi": "64Mi" },
        "limits": { "example.com/fpga": "2" },
    } } });
    let pod = made(&json!([]), &asked);
    let resources = container(&pod, "compute").resources.clone().unwrap();
    let (requests, limits) = (resources.requests.unwrap(), resources.limits.unwrap());
    assert_eq!(requests["example.com/fpga"].0, "2");
    assert_eq!(requests["hugepages-2Mi"].0, "64Mi");
    assert_eq!(limits["example.com/fpga"].0, "2");
    let device = json!({ "domain": { "resources": { "requests": { "devices.kubevirt.io/tun": "1" } } } });
    let refusal = made_with(&ClusterConfig::offline(), &json!([]), &device).unwrap_err().to_string();
    assert!(refusal.contains("devices.kubevirt.io/tun"), "the agent's device is not for QEMU: {refusal}");
    assert_ne!(requests["memory"].0, "256Mi", "the plan adds what QEMU needs");
}

#[test]
fn a_forbidden_feature_keeps_the_pod_off_nodes_that_have_it() {
    let cpu = json!({ "features": [{ "name": "vmx", "policy": "forbid" }, { "name": "svm", "policy": "disable" }] });
    let terms = |pod: &Pod| {
        let affinity = spec(pod).affinity.clone().unwrap();
        let required = affinity.node_affinity.unwrap().required_during_scheduling_ignored_during_execution.unwrap();
        serde_json::to_value(required.node_selector_terms).unwrap()
    };
    let absent = json!({ "key": "cpu-feature.node.kubevirt.io/vmx", "operator": "DoesNotExist" });
    let pod = made(&json!([]), &json!({ "domain": { "cpu": cpu } }));
    assert_eq!(terms(&pod), json!([{ "matchExpressions": [absent] }]));
    let written = json!({ "key": "zone", "operator": "In", "values": ["a"] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        { "nodeSelectorTerms": [{ "matchExpressions": [written] }, {}] } } });
    let pod = made(&json!([]), &json!({ "domain": { "cpu": cpu }, "affinity": affinity }));
    assert_eq!(terms(&pod), json!([{ "matchExpressions": [written, absent] }, { "matchExpressions": [absent] }]));
}

#[test]
fn passt_has_no_pod_to_run_in() {
    let network = json!({
        "domain": { "devices": { "interfaces": [{ "name": "default", "passtBinding": {} }] } },
        "networks": [{ "name": "default", "pod": {} }],
    });
    let refusal = made_with(&ClusterConfig::offline(), &json!([]), &network).unwrap_err().to_string();
    assert!(refusal.starts_with("spec.domain.devices.interfaces[0].passtBinding: "), "{refusal}");
    assert!(refusal.ends_with("write `masquerade: {}`"), "{refusal}");
}
