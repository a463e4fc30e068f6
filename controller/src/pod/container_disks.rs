//! Container disks without image volumes: the disk's own container runs a program of ours that opens it.
//!
//! ```text
//!   init container `garboard-container-disk`  (launcher's image)  copies the program into an emptyDir
//!   init container `volume<NAME>`     (the disk's image, restartPolicy Always)  the program opens the disk
//!         └── socket in an emptyDir in memory ──► `launcher`: a descriptor
//! ```

use garboard_api::v1::{ContainerDiskSource, KernelBootContainer};
use garboard_plan::Resources;
use garboard_protocol::agent::VolumePlace;
use garboard_protocol::pod::{CONTAINER_DISK_DIRECTORY, CONTAINER_DISK_PROGRAM, CONTAINER_DISK_SOCKETS};
use garboard_protocol::volumes::{KERNEL_BOOT_PREFIX, KERNEL_BOOT_VOLUME};
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Volume};

use super::PodInput;
use super::containers::{Share, of_launcher_image, powerless};
use super::contribution::{Contribution, NamedPlace, Writable, mount};

const SOCKETS: &str = "garboard-disks";
/// One program that sleeps, and the copy of it.
const SHARE: Share = Share { memory: "1Mi", cpu: "1m", bound_memory: "16Mi", bound_cpu: "10m" };
/// The name of a container is a DNS label.
const LONGEST_NAME: usize = 63;

/// Files of an image that a program of ours is to open.
#[derive(Clone)]
pub(super) struct ImageFiles {
    /// Name of the volume, after which the container is called.
    volume: String,
    image: String,
    pull_policy: Option<String>,
    files: Vec<ImageFile>,
}

/// One of them.
#[derive(Clone)]
struct ImageFile {
    /// The name by which the supervisor finds it.
    name: String,
    /// Its path in the image; an empty one is looked for.
    path: String,
}

/// A container disk.
pub(super) fn disk(name: &str, disk: &ContainerDiskSource) -> ImageFiles {
    ImageFiles {
        volume: name.to_owned(),
        image: disk.image.clone(),
        pull_policy: disk.image_pull_policy.clone(),
        files: vec![ImageFile { name: name.to_owned(), path: disk.path.clone().unwrap_or_default() }],
    }
}

/// The image of `kernelBoot`.
pub(super) fn kernel(boot: &KernelBootContainer) -> ImageFiles {
    let paths = [&boot.kernel_path, &boot.initrd_path].into_iter().flatten().filter(|path| !path.is_empty());
    ImageFiles {
        volume: KERNEL_BOOT_VOLUME.to_owned(),
        image: boot.image.clone(),
        pull_policy: boot.image_pull_policy.clone(),
        files: paths
            .map(|path| ImageFile { name: format!("{KERNEL_BOOT_PREFIX}{path}"), path: path.clone() })
            .collect(),
    }
}

/// An image that a program of ours opens files of.
pub(super) struct OpenedImage {
    /// Name of the container.
    container: String,
    image: String,
    pull_policy: Option<String>,
    files: Vec<OpenedFile>,
}

/// A file, and the socket through which the supervisor gets it.
struct OpenedFile {
    socket: String,
    /// Its path in the image; an empty one is looked for.
    path: String,
}

/// All images that are opened in a pod.
pub(super) struct OpenedImages {
    /// In the order in which their containers are to start.
    pub(super) images: Vec<OpenedImage>,
    /// Where the supervisor finds the files.
    pub(super) places: Vec<NamedPlace>,
    /// The volumes of their containers, if there is one.
    pub(super) volumes: Vec<Contribution>,
}

/// Gives containers and sockets their names.
pub(super) fn open(all: Vec<ImageFiles>) -> OpenedImages {
    let (mut images, mut places) = (Vec::new(), Vec::new());
    for (index, of_image) in all.into_iter().enumerate() {
        let mut files = Vec::new();
        for ImageFile { name, path } in of_image.files {
            let socket = format!("{CONTAINER_DISK_SOCKETS}/{}.sock", places.len() + 1);
            places.push(NamedPlace { name, place: VolumePlace::Handed { socket: socket.clone() } });
            files.push(OpenedFile { socket, path });
        }
        let container = container_name(&of_image.volume, index);
        images.push(OpenedImage { container, image: of_image.image, pull_policy: of_image.pull_policy, files });
    }
    let volumes = if images.is_empty() { Vec::new() } else { volumes().into() };
    OpenedImages { images, places, volumes }
}

/// The program, and the sockets.
fn volumes() -> [Contribution; 2] {
    let program =
        Volume { name: CONTAINER_DISK_PROGRAM.to_owned(), empty_dir: Some(Default::default()), ..Volume::default() };
    let in_memory = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), ..Default::default() };
    let sockets = Volume { name: SOCKETS.to_owned(), empty_dir: Some(in_memory), ..Volume::default() };
    [Contribution::beside(program), Contribution::mounted(sockets, CONTAINER_DISK_SOCKETS, Writable::No)]
}

/// What `volume<NAME>` is called where tools look for it, unless that is too long.
fn container_name(volume: &str, index: usize) -> String {
    let usual = format!("volume{volume}");
    let fits = usual.len() <= LONGEST_NAME && !volume.contains('/');
    if fits { usual } else { format!("volume-{index}") }
}

/// In the order in which they are to start; none where every image is a volume.
pub(super) fn containers(input: &PodInput<'_>, machine: &Resources, opened: &[OpenedImage]) -> Vec<Container> {
    if opened.is_empty() {
        return Vec::new();
    }
    let mut all = vec![installer(input, machine)];
    all.extend(opened.iter().map(|each| opener(each, machine)));
    all
}

fn installer(input: &PodInput<'_>, machine: &Resources) -> Container {
    let program = format!("/usr/bin/{CONTAINER_DISK_PROGRAM}");
    Container {
        name: CONTAINER_DISK_PROGRAM.to_owned(),
        command: Some(vec![program, "--install".to_owned(), CONTAINER_DISK_DIRECTORY.to_owned()]),
        resources: Some(SHARE.requirements(machine)),
        volume_mounts: Some(vec![mount(CONTAINER_DISK_PROGRAM, CONTAINER_DISK_DIRECTORY, Writable::Yes)]),
        ..of_launcher_image(input)
    }
}

fn opener(opened: &OpenedImage, machine: &Resources) -> Container {
    let program = format!("{CONTAINER_DISK_DIRECTORY}/{CONTAINER_DISK_PROGRAM}");
    let files = opened.files.iter().flat_map(|file| [file.socket.clone(), file.path.clone()]);
    Container {
        name: opened.container.clone(),
        image: Some(opened.image.clone()),
        image_pull_policy: opened.pull_policy.clone(),
        command: Some([program, "--open".to_owned()].into_iter().chain(files).collect()),
        restart_policy: Some("Always".to_owned()),
        resources: Some(SHARE.requirements(machine)),
        volume_mounts: Some(vec![
            mount(CONTAINER_DISK_PROGRAM, CONTAINER_DISK_DIRECTORY, Writable::No),
            mount(SOCKETS, CONTAINER_DISK_SOCKETS, Writable::Yes),
        ]),
        ..powerless()
    }
}
