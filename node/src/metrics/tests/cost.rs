//! What a scrape costs a node: its time, its series and its text, as docs/monitoring.md has them.
//!
//! `cargo test --locked --release -p garboard-node --lib metrics::tests::cost -- --nocapture` prints the figures of an optimised build,
//! which alone is held to [`WITHIN`].

use super::played::{Node, honest};
use super::*;

/// Series of one machine with two vCPUs, two disks, an interface with a tap and three file systems:
/// `15 + 3·C + 8·D + 10·I + 2·F`.
const SERIES: usize = 15 + 3 * 2 + 8 * 2 + 10 + 2 * 3;
/// The text of a hundred of them, bytes; a node may send four times that.
const SMALL: usize = 2 << 20;
const _: () = assert!(SMALL * 4 <= LONGEST_METRICS);
/// The time of a hundred of them.
const WITHIN: Duration = Duration::from_millis(200);
/// Ten times as many machines may take so many times as long: more than ten, as a machine that runs other tests beside it needs, and
/// less than the hundred of work that each machine causes for each.
const GROWTH: u32 = 40;
/// The shortest of so many scrapes counts.
const SCRAPES: usize = 5;

async fn scraped(machines: usize) -> (Duration, String) {
    let node = Node::of(machines);
    for number in 0..machines {
        node.know_instance(number);
        node.answer(number, |_| honest()).await;
    }
    let (mut names, mut shortest, mut text) = (Names::default(), Duration::MAX, String::new());
    for _ in 0..SCRAPES {
        let began = std::time::Instant::now();
        text = node.served.collect(&mut names).await;
        shortest = shortest.min(began.elapsed());
    }
    (shortest, text)
}

#[tokio::test]
async fn a_hundred_machines_cost_ten_times_as_much_as_ten_and_have_a_small_text() {
    let (ten, _) = scraped(10).await;
    let (hundred, text) = scraped(100).await;
    println!("| scrape of 10 machines | {ten:.1?} |");
    println!("| scrape of 100 machines | {hundred:.1?}, {} KiB |", text.len() / 1024);
    assert_eq!(value(&text, "garboard_node_machines"), 100.0);
    for left_out in ["machines_unanswered", "machines_left_out", "names_left_out"] {
        assert_eq!(value(&text, &format!("garboard_node_scrape_{left_out}")), 0.0, "{left_out}");
    }
    let series = text.lines().filter(|line| line.starts_with("kubevirt_vmi_")).count();
    assert_eq!(series, 100 * SERIES);
    assert!(text.len() < SMALL, "{}", text.len());
    assert!(hundred < ten * GROWTH, "{ten:?} and {hundred:?}");
    if !cfg!(debug_assertions) {
        assert!(hundred < WITHIN, "{hundred:?}");
    }
}
