//! What one volume brings to the pod. Everything that has volumes makes contributions of them; [`fold`] puts them together,
//! once, in their order.

use garboard_protocol::agent::{VolumePlace, VolumeTable};
use garboard_protocol::pod::DiskImage;
use k8s_openapi::api::core::v1::{Volume, VolumeDevice, VolumeMount};

use super::container_disks::{self, ImageFiles, OpenedImage};

/// A volume, and what has to be known of it.
#[derive(Default)]
pub(super) struct Contribution {
    /// The pod's volume.
    volume: Option<Volume>,
    /// Where the sidecar has it.
    attachment: Option<Attachment>,
    /// Where the supervisor finds a volume of the instance.
    place: Option<NamedPlace>,
    /// An image that the supervisor makes in it, if there is none.
    image: Option<DiskImage>,
    /// In place of a volume: files of an image that a program in a container of its own opens.
    opened: Option<ImageFiles>,
}

/// How the sidecar has a volume.
enum Attachment {
    Mount { path: String, writable: Writable },
    Device { path: String },
}

/// Whether the sidecar may write to a volume.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Writable {
    Yes,
    No,
}

/// An entry of the volume table.
pub(super) struct NamedPlace {
    /// Name of the instance's volume, or a name that both sides know.
    pub(super) name: String,
    /// Where it is.
    pub(super) place: VolumePlace,
}

impl Contribution {
    /// A volume that is mounted.
    pub(super) fn mounted(volume: Volume, path: &str, writable: Writable) -> Self {
        let attachment = Some(Attachment::Mount { path: path.to_owned(), writable });
        Self { volume: Some(volume), attachment, ..Self::default() }
    }

    /// A directory that the supervisor reads, and finds by this name.
    pub(super) fn directory(volume: Volume, name: &str, path: &str) -> Self {
        Self::mounted(volume, path, Writable::No).found_as(name, VolumePlace::Directory { path: path.to_owned() })
    }

    /// A block device, which the supervisor finds by this name.
    pub(super) fn device(volume: Volume, name: &str, path: String) -> Self {
        let attachment = Some(Attachment::Device { path: path.clone() });
        Self { volume: Some(volume), attachment, ..Self::default() }.found_as(name, VolumePlace::File { path })
    }

    /// A volume of other containers.
    pub(super) fn beside(volume: Volume) -> Self {
        Self { volume: Some(volume), ..Self::default() }
    }

    /// Files of an image that is no volume.
    pub(super) fn opened(files: ImageFiles) -> Self {
        Self { opened: Some(files), ..Self::default() }
    }

    /// With an entry in the volume table.
    pub(super) fn found_as(self, name: &str, place: VolumePlace) -> Self {
        Self { place: Some(NamedPlace { name: name.to_owned(), place }), ..self }
    }

    /// With an image that is made in it.
    pub(super) fn with_image(self, image: Option<DiskImage>) -> Self {
        Self { image, ..self }
    }
}

/// Volumes, mounts, and the table of what is where.
#[derive(Default)]
pub(super) struct Mounted {
    /// Of the pod.
    pub(super) volumes: Vec<Volume>,
    /// Of the sidecar.
    pub(super) mounts: Vec<VolumeMount>,
    /// Of the sidecar.
    pub(super) devices: Vec<VolumeDevice>,
    /// What the supervisor finds where.
    pub(super) table: VolumeTable,
    /// What the supervisor makes.
    pub(super) images: Vec<DiskImage>,
    /// Images whose files a program in a container of their own opens.
    pub(super) opened: Vec<OpenedImage>,
}

/// All contributions together. Volumes and mounts stay in their order; images that are opened are numbered in theirs.
pub(super) fn fold(contributions: impl IntoIterator<Item = Contribution>) -> Mounted {
    let (mut mounted, mut files) = (Mounted::default(), Vec::new());
    for contribution in contributions {
        files.extend(contribution.opened.clone());
        mounted.put(contribution);
    }
    let opened = container_disks::open(files);
    opened.places.into_iter().for_each(|place| mounted.enter(place));
    opened.volumes.into_iter().for_each(|volume| mounted.put(volume));
    Mounted { opened: opened.images, ..mounted }
}

impl Mounted {
    fn put(&mut self, contribution: Contribution) {
        let name = contribution.volume.as_ref().map(|volume| volume.name.clone()).unwrap_or_default();
        match contribution.attachment {
            Some(Attachment::Mount { path, writable }) => self.mounts.push(mount(&name, &path, writable)),
            Some(Attachment::Device { path }) => self.devices.push(VolumeDevice { name, device_path: path }),
            None => {}
        }
        self.volumes.extend(contribution.volume);
        self.images.extend(contribution.image);
        contribution.place.into_iter().for_each(|place| self.enter(place));
    }

    fn enter(&mut self, NamedPlace { name, place }: NamedPlace) {
        self.table.places.insert(name, place);
    }
}

/// A volume in a container.
pub(super) fn mount(name: &str, path: &str, writable: Writable) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: (writable == Writable::No).then_some(true),
        ..VolumeMount::default()
    }
}
