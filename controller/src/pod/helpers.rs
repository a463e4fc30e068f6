//! Container disks without image volumes: the disk's own container runs a program of ours that opens it.
//!
//! ```text
//!   init container `garboard-helper`  (launcher's image)  copies the program into an emptyDir
//!   init container `volume<NAME>`     (the disk's image, restartPolicy Always)  the program opens the disk
//!         └── socket in an emptyDir in memory ──► `launcher`: a descriptor
//! ```

use garboard_plan::Resources;
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::{HELPER_DIRECTORY, HELPER_PROGRAM, HELPER_SOCKETS};
use garboard_protocol::volumes::{KERNEL_BOOT_PREFIX, KERNEL_BOOT_VOLUME};
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Volume, VolumeMount};

use super::PodInput;
use super::containers::{Share, of_launcher_image, powerless};
use super::volumes::{Mounted, Writable};

const PROGRAM: &str = "garboard-helper";
const SOCKETS: &str = "garboard-disks";
/// One program that sleeps, and the copy of it.
const HELPER: Share = Share { memory: "1Mi", cpu: "1m", bound_memory: "16Mi", bound_cpu: "10m" };
/// The name of a container is a DNS label.
const LONGEST_NAME: usize = 63;

/// An image that a program of ours opens files of.
pub(super) struct Opened {
    /// Name of the container.
    container: String,
    image: String,
    pull_policy: Option<String>,
    /// Socket, and the file in the image; an empty one is looked for.
    files: Vec<(String, String)>,
}

impl Mounted {
    /// A container disk.
    pub(super) fn helped_disk(&mut self, name: &str, disk: &garboard_api::v1::ContainerDiskSource) {
        let file = disk.path.clone().unwrap_or_default();
        let files = vec![self.hand_over(name, file)];
        let (image, pull_policy) = (disk.image.clone(), disk.image_pull_policy.clone());
        self.opened.push(Opened { container: container_name(name, self.opened.len()), image, pull_policy, files });
    }

    /// The image of `kernelBoot`.
    pub(super) fn helped_kernel(&mut self, boot: &garboard_api::v1::KernelBootContainer) {
        let paths = [&boot.kernel_path, &boot.initrd_path].into_iter().flatten().filter(|path| !path.is_empty());
        let files = paths.map(|path| self.hand_over(&format!("{KERNEL_BOOT_PREFIX}{path}"), path.clone())).collect();
        let (image, pull_policy) = (boot.image.clone(), boot.image_pull_policy.clone());
        let container = container_name(KERNEL_BOOT_VOLUME, self.opened.len());
        self.opened.push(Opened { container, image, pull_policy, files });
    }

    fn hand_over(&mut self, place: &str, file: String) -> (String, String) {
        self.handed += 1;
        let socket = format!("{HELPER_SOCKETS}/{}.sock", self.handed);
        self.table.places.insert(place.to_owned(), VolumePlace::Handed { socket: socket.clone() });
        (socket, file)
    }

    /// The volumes of the helpers, if there is one.
    pub(super) fn helpers_volumes(&mut self) {
        if self.opened.is_empty() {
            return;
        }
        let program = Volume { name: PROGRAM.to_owned(), empty_dir: Some(Default::default()), ..Volume::default() };
        self.volumes.push(program);
        let in_memory = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), ..Default::default() };
        let sockets = Volume { name: SOCKETS.to_owned(), empty_dir: Some(in_memory), ..Volume::default() };
        self.mount(sockets, HELPER_SOCKETS, Writable::No);
    }
}

/// What `volume<NAME>` is called where tools look for it, unless that is too long.
fn container_name(volume: &str, index: usize) -> String {
    let usual = format!("volume{volume}");
    let fits = usual.len() <= LONGEST_NAME && !volume.contains('/');
    if fits { usual } else { format!("volume-{index}") }
}

/// In the order in which they are to start; none where every image is a volume.
pub(super) fn containers(input: &PodInput<'_>, machine: &Resources, mounted: &Mounted) -> Vec<Container> {
    if mounted.opened.is_empty() {
        return Vec::new();
    }
    let mut all = vec![installer(input, machine)];
    all.extend(mounted.opened.iter().map(|opened| helper(opened, machine)));
    all
}

fn installer(input: &PodInput<'_>, machine: &Resources) -> Container {
    let program = format!("/usr/bin/{HELPER_PROGRAM}");
    Container {
        name: PROGRAM.to_owned(),
        command: Some(vec![program, "--install".to_owned(), HELPER_DIRECTORY.to_owned()]),
        resources: Some(HELPER.requirements(machine)),
        volume_mounts: Some(vec![mount(PROGRAM, HELPER_DIRECTORY, Writable::Yes)]),
        ..of_launcher_image(input)
    }
}

fn helper(opened: &Opened, machine: &Resources) -> Container {
    let program = format!("{HELPER_DIRECTORY}/{HELPER_PROGRAM}");
    let files = opened.files.iter().flat_map(|(socket, file)| [socket.clone(), file.clone()]);
    Container {
        name: opened.container.clone(),
        image: Some(opened.image.clone()),
        image_pull_policy: opened.pull_policy.clone(),
        command: Some([program, "--open".to_owned()].into_iter().chain(files).collect()),
        restart_policy: Some("Always".to_owned()),
        resources: Some(HELPER.requirements(machine)),
        volume_mounts: Some(vec![
            mount(PROGRAM, HELPER_DIRECTORY, Writable::No),
            mount(SOCKETS, HELPER_SOCKETS, Writable::Yes),
        ]),
        ..powerless()
    }
}

fn mount(name: &str, path: &str, writable: Writable) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: (writable == Writable::No).then_some(true),
        ..VolumeMount::default()
    }
}
