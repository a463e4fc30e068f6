use super::*;
use crate::catalogue::{controller, node};
use crate::histogram::Histogram;

fn small() -> Exposition {
    let mut small = Exposition::default();
    let vm = Labels::of(&[("node", "node-1"), ("namespace", "ns"), ("name", "vm")]);
    small.add(&node::VMI_VCPU_SECONDS, &vm.clone().and("id", "1").and("state", "running"), 2.5);
    small.add(&node::VMI_CPU_USAGE_SECONDS, &vm, 12.25);
    small.add(&node::VMI_VCPU_SECONDS, &vm.clone().and("id", "0").and("state", "running"), 3.0);
    small.add(&node::VMI_FILESYSTEM_USED_BYTES, &vm.and("mount_point", "C:\\ \"x\"\ny"), 17_179_869_184.0);
    let histogram = Histogram::default();
    histogram.observe(0.3);
    histogram.observe(4000.0);
    let labels = Labels::of(&[("phase", "Running")]);
    small.add_histogram(&controller::VMI_PHASE_TRANSITION_TIME_FROM_CREATION, &labels, &histogram.seen());
    small
}

#[test]
fn the_text_is_the_recorded_one() {
    assert_eq!(small().text(), include_str!("../../tests/golden/small.txt"));
}

#[test]
fn what_a_guest_says_ends_no_line_and_no_value() {
    let hostile = "x\"} 1\nkubevirt_vmi_info{name=\"other\"} 1\n";
    let mut text = Exposition::default();
    text.add(&node::VMI_FILESYSTEM_USED_BYTES, &Labels::of(&[("mount_point", hostile)]), 1.0);
    let text = text.text();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.ends_with("\\n\"} 1\n"), "{text}");
    let long = Labels::of(&[("a", &"ö".repeat(10_000))]);
    assert_eq!(long.0.chars().count(), LONGEST_VALUE + 4);
}

#[test]
fn a_value_that_is_empty_is_left_out_and_numbers_are_those_of_prometheus() {
    assert_eq!(Labels::of(&[("a", ""), ("b", "1"), ("c", "")]), Labels::of(&[("b", "1")]));
    let written = [0.0, 1.0, 1e21, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number_text);
    assert_eq!(written, ["0", "1", "1000000000000000000000", "0.1", "NaN", "+Inf", "-Inf"]);
}

#[test]
fn what_is_appended_is_among_the_others_of_its_metric() {
    let machine = |name: &str| {
        let mut one = Exposition::default();
        one.add(&node::VMI_MEMORY_RESIDENT_BYTES, &Labels::of(&[("name", name)]), 1.0);
        one
    };
    let mut all = machine("a");
    all.append(machine("b"));
    let text = all.text();
    assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), 1, "{text}");
    assert!(text.ends_with("{name=\"a\"} 1\nkubevirt_vmi_memory_resident_bytes{name=\"b\"} 1\n"), "{text}");
    let lines: usize = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.len() + 1).sum();
    assert_eq!(all.bytes(), lines);
}
