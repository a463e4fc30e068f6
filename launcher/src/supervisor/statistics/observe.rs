//! Questions to QEMU that no storage has to answer: counters are in its memory.

use std::collections::BTreeMap;

use garboard_plan::LaunchPlan;
use garboard_protocol::causes::ErrorChain;
use garboard_protocol::statistics::{BalloonStatistics, DiskStatistics, MOST_OF_A_KIND, OperationStatistics};
use garboard_qmp::{CallError, Monitor, qmp};
use serde::Deserialize;
use serde_json::Value;

/// The balloon (`garboard_plan`), as QEMU's object model names it.
const BALLOON: &str = "/machine/peripheral/balloon0";
/// How often QEMU asks the guest's driver, seconds; KubeVirt's value. It begins with the first scrape.
const POLLING_SECONDS: u64 = 10;
/// Where QEMU keeps the devices that have an ID.
const PERIPHERALS: &str = "/machine/peripheral/";

/// What QEMU has counted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Held {
    /// Of the balloon, if there is one.
    pub(super) balloon: Option<BalloonStatistics>,
    /// Of the disks of the plan.
    pub(super) disks: Vec<DiskStatistics>,
}

/// The disks' counters.
pub(super) async fn disks(monitor: &Monitor, plan: &LaunchPlan) -> Vec<DiskStatistics> {
    let blocks: Vec<Block> = match monitor.ask(&qmp::query_blockstats { query_nodes: None }).await {
        Ok(blocks) => blocks,
        Err(error) => {
            tracing::debug!(error = %ErrorChain(&error), "QEMU did not say what its disks have done");
            return Vec::new();
        }
    };
    let disk = |block: Block| {
        let device = device(&block.qdev)?;
        let volume = plan.disks.iter().find(|disk| disk.device == device)?.volume.clone();
        let of = |operations, bytes, nanoseconds| OperationStatistics { operations, bytes, nanoseconds };
        let stats = &block.stats;
        Some(DiskStatistics {
            volume,
            read: of(stats.rd_operations, stats.rd_bytes, stats.rd_total_time_ns),
            write: of(stats.wr_operations, stats.wr_bytes, stats.wr_total_time_ns),
            flush: of(stats.flush_operations, 0, stats.flush_total_time_ns),
        })
    };
    blocks.into_iter().filter_map(disk).take(MOST_OF_A_KIND).collect()
}

/// What the balloon leaves to the guest, and what its driver reports; nothing of a machine without a balloon.
pub(super) async fn balloon(monitor: &Monitor) -> Option<BalloonStatistics> {
    let actual = monitor.ask::<Actual>(&qmp::query_balloon {}).await.ok()?.actual;
    let reported = guest_stats(monitor).await.unwrap_or_default();
    let of = |name: &str| reported.stats.get(name).and_then(Value::as_u64).filter(|value| *value != u64::MAX);
    Some(BalloonStatistics {
        actual_bytes: Some(actual),
        total_bytes: of("stat-total-memory"),
        free_bytes: of("stat-free-memory"),
        available_bytes: of("stat-available-memory"),
        cached_bytes: of("stat-disk-caches"),
        swap_in_bytes: of("stat-swap-in"),
        swap_out_bytes: of("stat-swap-out"),
        major_faults: of("stat-major-faults"),
        minor_faults: of("stat-minor-faults"),
    })
}

/// The driver is asked by QEMU from now on, if it was not before: the answer to the first scrape has nothing of it.
async fn guest_stats(monitor: &Monitor) -> Result<GuestStats, CallError> {
    let get = |property: &str| qmp::qom_get { path: BALLOON.to_owned(), property: property.to_owned() };
    let interval: u64 = monitor.ask(&get("guest-stats-polling-interval")).await?;
    if interval == 0 {
        let value = Value::from(POLLING_SECONDS);
        let property = "guest-stats-polling-interval".to_owned();
        monitor.call(&qmp::qom_set { path: BALLOON.to_owned(), property, value }).await?;
    }
    monitor.ask(&get("guest-stats")).await
}

/// The device's ID in what QEMU calls it: that, or the path of one of its parts.
fn device(qdev: &str) -> Option<&str> {
    let path = qdev.strip_prefix(PERIPHERALS).unwrap_or(qdev);
    path.split('/').next().filter(|id| !id.is_empty())
}

#[derive(Deserialize)]
struct Actual {
    actual: u64,
}

#[derive(Default, Deserialize)]
struct GuestStats {
    #[serde(default)]
    stats: BTreeMap<String, Value>,
}

/// A backend of a device.
#[derive(Deserialize)]
struct Block {
    #[serde(default)]
    qdev: String,
    #[serde(default)]
    stats: Counted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counted {
    rd_bytes: u64,
    wr_bytes: u64,
    rd_operations: u64,
    wr_operations: u64,
    flush_operations: u64,
    rd_total_time_ns: u64,
    wr_total_time_ns: u64,
    flush_total_time_ns: u64,
}
