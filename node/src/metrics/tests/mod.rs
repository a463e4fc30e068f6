mod cost;
mod hostile;
mod played;

use super::*;
use crate::pods::launcher_pod;
use crate::pods::tests::{POD, example};

fn served(processes: PathBuf) -> Served {
    let pods: Arc<Mirror<LauncherPod>> = Arc::default();
    pods.insert(POD, launcher_pod(&example(), "node-1").unwrap());
    let (node, vmis, requests) = ("node-1".to_owned(), Arc::default(), Requests::default());
    let sources = Sources { node, version: "0.1.0-test", pods, vmis, processes, requests };
    Served::new(Connected::default(), sources)
}

fn value(text: &str, metric: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(metric)).unwrap_or_else(|| panic!("{metric} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// A `/proc` with the QEMU of the example, and the agent in a pod beside it.
fn processes() -> tempfile::TempDir {
    let room = tempfile::tempdir().unwrap();
    let group = |pod: &str| format!("0::/kubepods/burstable/pod{pod}/container\n");
    for (process, name, pod) in
        [("self", "agent", "11111111-7c1f-4d57-9c5e-6f0c7d6a1b2c"), ("7", "qemu-system-x86", POD)]
    {
        let directory = room.path().join(process);
        std::fs::create_dir_all(directory.join("task")).unwrap();
        std::fs::write(directory.join("cgroup"), group(pod)).unwrap();
        std::fs::write(directory.join("comm"), name).unwrap();
        let stat = format!("7 ({name}) S {}150 50{} 0", "1 ".repeat(10), " 0".repeat(30));
        std::fs::write(directory.join("stat"), stat).unwrap();
    }
    room
}

#[tokio::test]
async fn a_machine_whose_launcher_is_not_connected_is_counted_and_has_what_the_kernel_says() {
    let room = processes();
    let text = served(room.path().to_owned()).metrics().await.unwrap();
    assert_eq!(value(&text, "garboard_node_machines{node=\"node-1\"}"), 1.0);
    assert_eq!(value(&text, "garboard_node_scrape_machines_unanswered"), 1.0);
    assert_eq!(value(&text, "garboard_node_scrape_machines_left_out"), 0.0);
    assert_eq!(value(&text, "kubevirt_vmi_cpu_usage_seconds_total"), 2.0);
    assert_eq!(value(&text, "kubevirt_info{kubeversion=\"0.1.0-test\"}"), 1.0);
}

#[tokio::test]
async fn a_node_whose_processes_cannot_be_read_is_exposed_all_the_same() {
    let text = served("/nonexistent".into()).metrics().await.unwrap();
    assert_eq!(value(&text, "garboard_node_machines"), 0.0);
    // A pod without QEMU is no machine that does not answer.
    assert_eq!(value(&text, "garboard_node_scrape_machines_unanswered"), 0.0);
}

#[test]
fn where_there_is_not_room_for_all_each_machine_has_the_same_share() {
    use garboard_protocol::statistics::{DiskStatistics, MOST_OF_A_KIND};
    let machine = |disks: usize| {
        let disk = |number: usize| DiskStatistics { volume: format!("{number:0>250}"), ..DiskStatistics::default() };
        let statistics = Statistics { disks: (0..disks).map(disk).collect(), ..Statistics::default() };
        let pod = launcher_pod(&example(), "node-1").unwrap();
        Machine { pod, process: Some(Process::default()), statistics: Some(statistics), vmi: None }
    };
    assert_eq!(most_of_each(&[machine(1)], "node-1"), MOST_OF_A_MACHINE);
    let machines: Vec<Machine> = (0..40).map(|_| machine(MOST_OF_A_KIND)).chain([machine(1)]).collect();
    assert_eq!(most_of_each(&machines, "node-1"), MOST / machines.len());
    let text = served("/nonexistent".into()).exposed(machines, 0, Instant::now()).text();
    assert!(text.len() <= LONGEST_METRICS, "{}", text.len());
    assert_eq!(value(&text, "garboard_node_scrape_machines_left_out"), 40.0);
    assert_eq!(text.lines().filter(|line| line.starts_with("kubevirt_vmi_storage_iops_read_total{")).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_scrapes_at_once_gets_the_same_text() {
    let served = served("/nonexistent".into());
    let (one, other) = tokio::join!(served.metrics(), served.metrics());
    assert_eq!(one, other);
    let first = served.last.lock().await.text.as_ref().map(|(at, _)| *at);
    tokio::time::advance(FRESH + Duration::from_millis(1)).await;
    let _ = served.metrics().await;
    assert_ne!(served.last.lock().await.text.as_ref().map(|(at, _)| *at), first);
}
