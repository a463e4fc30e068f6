//! What was decided and done needs no second time.

use proptest::prelude::*;

use super::*;

/// What the API server and the other controllers do with a decision.
fn carry_out(world: &mut World, decision: &Decision) {
    for claim in &decision.claims {
        let member = world.members.iter_mut().find(|member| member.uid == claim.uid).unwrap();
        member.owners.clone_from(&claim.owners);
    }
    for name in &decision.create {
        assert!(world.members.iter().all(|member| member.name != *name), "{name} is there already");
        world.members.push(member(name, Phase::Pending, world.now.as_second()));
    }
    for victim in decision.excess.iter().chain(&decision.finished) {
        world.members.iter_mut().find(|member| member.uid == victim.uid).unwrap().leaves = true;
    }
    world.set.status = Some(decision.status.clone());
    // Who is released and not selected is seen no more.
    world.members.retain(|member| member.controller().is_some() || member.labels.contains_key("app"));
    look(world);
}

fn anyone(number: usize) -> impl Strategy<Value = Member> {
    let phases = prop::sample::select(Phase::ALL.to_vec());
    (phases, any::<[bool; 5]>(), 900_i64..1000).prop_map(move |(phase, traits, second)| {
        let [is_ready, pod_leaves, leaves, is_selected, is_alone] = traits;
        let mut member = member(&format!("m{number}"), phase, second);
        let is_lost = phase == Phase::Unknown && !is_ready;
        member.progress = Progress { phase, is_ready, pod_leaves: pod_leaves && !is_ready, is_lost };
        member.leaves = leaves;
        if is_alone {
            member.owners.clear();
        }
        // Others are not seen.
        if !is_selected && !is_alone {
            member.labels.clear();
        }
        member
    })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    (0_usize..8).prop_flat_map(|count| (0..count).map(anyone).collect::<Vec<_>>())
}

fn active(world: &World) -> usize {
    world.members.iter().filter(|each| each.is_active() && each.labels.contains_key("app")).count()
}

proptest! {
    /// Fixpoint: after two looks nothing is left to do, as many instances count as are wanted, and the status is not written again.
    #[test]
    fn a_decision_that_was_carried_out_leaves_nothing_to_do(
        wanted in 0_i32..10,
        members in members(),
        is_paused in any::<bool>(),
        is_deleted in any::<bool>(),
    ) {
        let mut world = world(wanted, members);
        world.set.spec.paused = Some(is_paused);
        world.set.metadata.deletion_timestamp = is_deleted.then_some(Time(world.now));
        // Nobody waits any more for an instance that failed at once.
        world.now = Timestamp::from_second(2000).unwrap();
        look(&mut world);
        let first = decide(&world);
        carry_out(&mut world, &first);
        let second = decide(&world);
        prop_assert!(!second.acts(), "{:?}", second);
        prop_assert_eq!(second.recheck, None);
        if !is_paused && !is_deleted {
            prop_assert_eq!(active(&world), usize::try_from(wanted).unwrap());
            prop_assert_eq!(second.status.replicas, Some(wanted));
        }
        carry_out(&mut world, &second);
        prop_assert_eq!(Some(decide(&world).status), world.set.status);
    }

    /// Names: whichever of the new instances a store knows already, the names of the others are those that were chosen before.
    #[test]
    fn a_store_that_lags_leads_to_names_that_are_taken(wanted in 0_i32..20, members in members(), seen in any::<u32>()) {
        let before = world(wanted, members);
        let create = decide(&before).create;
        let is_seen = |place: usize| seen & (1_u32 << place) != 0;
        let mut after = before.clone();
        let (known, others): (Vec<_>, Vec<_>) = create.iter().enumerate().partition(|(place, _)| is_seen(*place));
        after.members.extend(known.into_iter().map(|(_, name)| member(name, Phase::Pending, 1000)));
        look(&mut after);
        prop_assert_eq!(decide(&after).create, others.into_iter().map(|(_, name)| name.clone()).collect::<Vec<_>>());
    }
}
