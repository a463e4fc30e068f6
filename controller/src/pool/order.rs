//! Which machines are taken for an update or a deletion, and which of them first. Pure.

use garboard_api::selector::{self, Labels};
use garboard_api::v1::{VirtualMachinePoolSelectionPolicy, VirtualMachinePoolSelectors};
use garboard_api::{VirtualMachinePool, pool};
use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use uuid::Uuid;

use super::member::Member;

/// Those of the machines that a policy takes, in its order; `chance` is any number.
pub(super) fn taken<'a>(
    pool: &VirtualMachinePool,
    policy: Option<&VirtualMachinePoolSelectionPolicy>,
    members: Vec<&'a Member>,
    chance: u64,
) -> Vec<&'a Member> {
    let selectors = policy.and_then(|policy| policy.selectors.as_ref());
    let mut taken = members;
    taken.retain(|member| selectors.is_none_or(|selectors| selects(selectors, member)));
    let number = |member: &&Member| pool::number(pool, &member.name);
    // Two that are alike to the policy are in the order of their names.
    taken.sort_by(|one, other| one.name.cmp(&other.name));
    match policy.and_then(|policy| policy.sort_policy.as_deref()) {
        Some("AscendingOrder") => taken.sort_by_key(number),
        Some("DescendingOrder") => taken.sort_by_key(|member| std::cmp::Reverse(number(member))),
        Some("Oldest") => taken.sort_by_key(|member| member.created),
        Some("Newest") => taken.sort_by_key(|member| std::cmp::Reverse(member.created)),
        // `Random`, the default.
        Some(_) | None => taken.sort_by_cached_key(|member| mixed(&member.uid, chance)),
    }
    taken
}

/// A number that follows from both, and looks like any.
fn mixed(uid: &str, chance: u64) -> Uuid {
    Uuid::new_v5(&Uuid::from_u64_pair(chance, 0), uid.as_bytes())
}

fn selects(selectors: &VirtualMachinePoolSelectors, member: &Member) -> bool {
    let of_labels = selectors.label_selector.as_ref();
    let mut of_nodes = selectors.node_selector_requirement_matcher.iter();
    of_labels.is_none_or(|wanted| selector::matches(wanted, &member.state.template_labels))
        && of_nodes.all(|requirement| is_met(requirement, &member.state.node_selector))
}

/// By the rules of a node's labels. An operator that does not exist is met by nothing; admission refuses it.
fn is_met(requirement: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&requirement.key);
    let compared = || -> Option<std::cmp::Ordering> {
        let known: i64 = value?.parse().ok()?;
        Some(known.cmp(&values.first()?.parse().ok()?))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        // Also met by a machine without the label.
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::member::State;
    use super::*;

    fn pool() -> VirtualMachinePool {
        serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap()
    }

    fn member(number: u32, second: i64) -> Member {
        let metadata = json!({"name": format!("p-{number}"), "uid": format!("u{number}"),
            "creationTimestamp": jiff::Timestamp::from_second(second).unwrap()});
        let mut member = Member::new(serde_json::from_value(metadata).unwrap(), State::default(), None);
        member
            .state
            .template_labels
            .insert("parity".to_owned(), if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned());
        member.state.node_selector.insert("size".to_owned(), number.to_string());
        member
    }

    fn order(policy: Value, chance: u64) -> Vec<String> {
        let policy: VirtualMachinePoolSelectionPolicy = serde_json::from_value(policy).unwrap();
        let members = [member(2, 30), member(10, 10), member(0, 20), member(1, 20)];
        let taken = taken(&pool(), Some(&policy), members.iter().collect(), chance);
        taken.into_iter().map(|member| member.name.clone()).collect()
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_times_as_times() {
        assert_eq!(order(json!({"sortPolicy": "AscendingOrder"}), 1), ["p-0", "p-1", "p-2", "p-10"]);
        assert_eq!(order(json!({"sortPolicy": "DescendingOrder"}), 1), ["p-10", "p-2", "p-1", "p-0"]);
        assert_eq!(order(json!({"sortPolicy": "Oldest"}), 1), ["p-10", "p-0", "p-1", "p-2"]);
        assert_eq!(order(json!({"sortPolicy": "Newest"}), 1), ["p-2", "p-0", "p-1", "p-10"]);
    }

    #[test]
    fn by_chance_each_machine_is_the_first_some_time() {
        let firsts: std::collections::BTreeSet<String> =
            (0..200).map(|chance| order(json!({}), chance).remove(0)).collect();
        assert_eq!(firsts.len(), 4, "{firsts:?}");
        assert_eq!(order(json!({"sortPolicy": "Random"}), 7), order(json!({}), 7), "the same chance, the same order");
    }

    #[test]
    fn only_what_meets_every_selector_is_taken() {
        let taken = |selectors: Value| order(json!({"sortPolicy": "AscendingOrder", "selectors": selectors}), 1);
        let even = json!({"matchLabels": {"parity": "even"}});
        assert_eq!(taken(json!({ "labelSelector": even })), ["p-0", "p-2", "p-10"]);
        let nodes = |operator: &str, values: &[&str]| json!([{"key": "size", "operator": operator, "values": values}]);
        let of =
            |operator: &str, values: &[&str]| taken(json!({"nodeSelectorRequirementMatcher": nodes(operator, values)}));
        assert_eq!(of("Gt", &["1"]), ["p-2", "p-10"]);
        assert_eq!(of("Lt", &["2"]), ["p-0", "p-1"]);
        assert_eq!(of("In", &["2", "10"]), ["p-2", "p-10"]);
        assert_eq!(of("NotIn", &["2", "10"]), ["p-0", "p-1"]);
        assert_eq!((of("Exists", &[]).len(), of("DoesNotExist", &[]).len(), of("Like", &[]).len()), (4, 0, 0));
        let both = json!({"labelSelector": even, "nodeSelectorRequirementMatcher": nodes("Gt", &["1"])});
        assert_eq!(taken(both), ["p-2", "p-10"]);
        assert_eq!(taken(json!({})).len(), 4);
    }
}
