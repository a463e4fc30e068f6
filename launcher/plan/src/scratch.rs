//! Room for what a guest writes and loses at its stop: layers over images and claims, and empty disks.
//!
//! ```text
//!   need of a disk: its size, and the tables of qcow2 ─┐
//!   budget: limits.ephemeral-storage of the manifest,  ├─► rooms: small disks get what they need, the rest is shared
//!           or of the pod's container (LimitRange)    ─┘
//! ```
//!
//! A layer with less room than it needs has an end that QEMU enforces: a guest that writes for ever gets "no space left" on its
//! own disk, before the kubelet counts more than the pod may have and evicts it.

use std::collections::BTreeMap;

use garboard_api::quantity::Quantity;
use garboard_api::v1::Volume;
use garboard_machine::qcow2::{CLUSTER_BYTES, MOST_VIRTUAL_BYTES, host_bytes_of_empty};

use super::draft::Input;
use super::opening;

/// What a layer in a pod may grow to without a limit in the manifest, bytes. An image itself states how large its disk is, and may
/// state 64 TiB.
const USUAL_LAYER_BYTES: u64 = 128 << 30;

/// The resource that bounds what a container keeps on its node's disk.
const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Rooms of a machine's layers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ScratchSpace {
    /// Bytes, by disk, of those that have less than they could take.
    bounded: BTreeMap<String, u64>,
    /// The most that all layers together can take, bytes.
    total: u64,
}

/// What one disk could take of the scratch directory, bytes.
#[derive(Debug)]
struct Need {
    disk: String,
    /// Written from end to end.
    whole: u64,
    /// What it may have at most.
    most: u64,
    /// With less its image could not be made.
    least: u64,
}

impl ScratchSpace {
    /// Shares the budget among the disks that write to the scratch directory.
    pub(super) fn of(input: Input<'_>) -> Self {
        let mut needs = needs(input);
        needs.sort_by_key(|need| need.most);
        let mut left = budget(input).unwrap_or(u64::MAX);
        let mut others = needs.len() as u64;
        let mut rooms = Self::default();
        for need in needs {
            let room = need.most.min(left / others.max(1));
            (left, others) = (left - room, others - 1);
            let room = if room < need.whole { whole_clusters(room).max(need.least) } else { need.whole };
            rooms.total = rooms.total.saturating_add(room);
            if room < need.whole {
                rooms.bounded.insert(need.disk, room);
            }
        }
        rooms
    }

    /// The most bytes that the layer of this disk may take; `None`: it may take all it could.
    pub(super) fn of_disk(&self, disk: &str) -> Option<u64> {
        self.bounded.get(disk).copied()
    }

    /// The most bytes that all layers together can take.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

/// qcow2 needs tables for what it holds: entries of 8 and 2 bytes for each cluster of 64 KiB, and its header.
const fn with_tables(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4096).saturating_add(1 << 20)
}

const fn whole_clusters(bytes: u64) -> u64 {
    bytes / CLUSTER_BYTES * CLUSTER_BYTES
}

/// `resources.limits.ephemeral-storage` of the manifest, bytes.
fn written(input: Input<'_>) -> Option<u64> {
    input.domain().resources.as_ref()?.limits.get(EPHEMERAL_STORAGE).and_then(Quantity::to_bytes)
}

/// What all layers together may take, bytes; `None`: no limit.
fn budget(input: Input<'_>) -> Option<u64> {
    let of_pod = input.options.scratch_limit_bytes;
    written(input).into_iter().chain(of_pod).min()
}

fn needs(input: Input<'_>) -> Vec<Need> {
    let volumes = &input.spec().volumes;
    let of_disk = |name: &str| {
        let volume = volumes.iter().find(|volume| volume.name == *name)?;
        let (whole, most) = sizes(input, volume)?;
        let least = host_bytes_of_empty(whole.min(MOST_VIRTUAL_BYTES));
        Some(Need { disk: name.to_owned(), whole, most: most.min(whole), least })
    };
    input.devices().disks.iter().filter_map(|disk| of_disk(&disk.name)).collect()
}

/// What the volume's layer could take and what it may take, bytes; nothing if it has none.
fn sizes(input: Input<'_>, volume: &Volume) -> Option<(u64, u64)> {
    if let Some(empty) = &volume.empty_disk {
        let bytes = with_tables(empty.capacity.to_bytes()?);
        return Some((bytes, bytes));
    }
    if !opening::has_overlay(input.spec(), volume) {
        return None;
    }
    let known = input.options.volumes.get(&volume.name).and_then(|facts| facts.virtual_bytes);
    let is_written = written(input).is_some();
    // The pod's creator has not seen the image: with a limit it may be of any size, without it is taken for a usual one.
    let unseen = if is_written { MOST_VIRTUAL_BYTES } else { USUAL_LAYER_BYTES };
    let whole = with_tables(known.unwrap_or(unseen));
    let is_usual = input.options.scratch_limit_bytes.is_some() && !is_written;
    Some((whole, if is_usual { with_tables(USUAL_LAYER_BYTES) } else { whole }))
}
