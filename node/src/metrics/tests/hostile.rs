//! A launcher that was taken over by its guest: what it says makes few series, and is counted.

use std::collections::BTreeSet;

use garboard_metrics::LONGEST_VALUE;
use garboard_protocol::statistics::{
    DiskStatistics, FileSystemStatistics, MOST_FILE_SYSTEMS, MOST_OF_A_KIND, TappedInterface,
};

use super::played::Node;
use super::*;

/// Scrapes, each of which is answered with other names.
const SCRAPES: usize = 8;
/// What it sends beyond what is read of each list.
const MORE: usize = 5;
/// The longest name of a series with its labels: three of a file system, the longest value each, and what every one has.
const LONGEST: usize = 3 * (LONGEST_VALUE + 32) + 256;

/// Another answer each time, with more in it than is read, and names that are too long.
fn hostile(asked: usize) -> Statistics {
    let name = |number: usize| format!("{asked}-{number}");
    let long = |number: usize| name(number) + &"n".repeat(LONGEST_VALUE);
    let disk = |number| DiskStatistics { volume: name(number), ..DiskStatistics::default() };
    // Every network namespace has this link.
    let tapped = |number| TappedInterface { name: name(number), tap: "lo".to_owned() };
    let file_system = |number| FileSystemStatistics {
        name: long(number),
        mountpoint: long(number),
        kind: long(number),
        ..FileSystemStatistics::default()
    };
    Statistics {
        disks: (0..MOST_OF_A_KIND + MORE).map(disk).collect(),
        interfaces: (0..MOST_OF_A_KIND + MORE).map(tapped).collect(),
        file_systems: (0..MOST_FILE_SYSTEMS + MORE).map(file_system).collect(),
        ..Statistics::default()
    }
}

/// Every series of all scrapes, and what the last one left out.
async fn scraped(node: &Node) -> (BTreeSet<String>, f64) {
    node.answer(0, hostile).await;
    // A vCPU that the instance does not have: QEMU names its threads.
    node.run_thread(0, 99, "CPU 7/KVM");
    let (mut names, mut series, mut left_out) = (Names::default(), BTreeSet::new(), 0.0);
    for _ in 0..SCRAPES {
        let text = node.served.collect(&mut names).await;
        assert_eq!(value(&text, "garboard_node_scrape_machines_unanswered"), 0.0);
        left_out = value(&text, "garboard_node_scrape_names_left_out");
        let of_machines = text.lines().filter(|line| line.starts_with("kubevirt_vmi_"));
        series.extend(of_machines.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()));
    }
    (series, left_out)
}

fn count(series: &BTreeSet<String>, part: &str) -> usize {
    series.iter().filter(|each| each.contains(part)).count()
}

#[tokio::test]
async fn only_the_disks_interfaces_and_vcpus_of_the_instance_have_series_and_few_file_systems() {
    let node = Node::of(1);
    node.know_instance(0);
    let (series, left_out) = scraped(&node).await;
    assert_eq!((count(&series, "_storage_"), count(&series, "_network_"), count(&series, "id=\"7\"")), (0, 0, 0));
    assert!(count(&series, "_vcpu_") > 0);
    // Two series of each.
    assert_eq!(count(&series, "_filesystem_"), 2 * MOST_OF_A_KIND);
    let of_lists = 2 * (MOST_OF_A_KIND + MORE) + MOST_FILE_SYSTEMS + MORE;
    assert_eq!(left_out, (of_lists + 1) as f64, "all that it sent, and a vCPU");
    assert!(series.iter().all(|each| each.len() < LONGEST), "{:?}", series.iter().map(String::len).max());
}

#[tokio::test]
async fn a_machine_whose_instance_is_not_known_has_few_of_all() {
    let node = Node::of(1);
    let (series, left_out) = scraped(&node).await;
    assert_eq!(count(&series, "_storage_iops_read_"), MOST_OF_A_KIND);
    assert_eq!(count(&series, "_network_receive_bytes_"), MOST_OF_A_KIND);
    assert_eq!(count(&series, "_filesystem_capacity_"), MOST_OF_A_KIND);
    let of_lists = 2 * (MOST_OF_A_KIND + MORE) + MOST_FILE_SYSTEMS + MORE;
    assert_eq!(left_out, of_lists as f64);
}
