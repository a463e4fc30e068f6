//! What was decided and done needs no second time.

use proptest::prelude::*;

use super::*;

/// What the API server and the other controllers do with one step.
fn carry_out(world: &mut World, step: &Step) {
    fn find<'a>(world: &'a mut World, wanted: &Victim) -> &'a mut Member {
        world.members.iter_mut().find(|member| member.uid == wanted.uid).unwrap()
    }
    match step {
        Step::Claim(claim) => {
            let wanted = Victim { name: claim.name.clone(), uid: claim.uid.clone() };
            find(world, &wanted).owners.clone_from(&claim.owners);
        }
        Step::Create(number) => {
            let made = member(&world.pool, *number, world.now.as_second());
            assert!(world.members.iter().all(|each| each.name != made.name), "{} is there already", made.name);
            world.members.push(made);
        }
        Step::Delete { victim, .. } | Step::LetGo(victim) => world.members.retain(|member| member.uid != victim.uid),
        Step::Retire(machine) => {
            let machine = find(world, machine);
            machine.is_retired = true;
            machine.state.strategy = Some(RunStrategy::Halted);
            (machine.instance, machine.state.is_down) = (None, true);
        }
        Step::Rewrite { machine, .. } => {
            let revision = names::revision_name(&world.pool);
            find(world, machine).labels.insert(label::POOL_REVISION.to_owned(), revision);
        }
        Step::Relabel { instance, .. } | Step::Restart { instance, .. } => {
            let revision = names::revision_name(&world.pool);
            let owner =
                world.members.iter_mut().find(|each| each.instance.as_ref().is_some_and(|own| own.uid == *instance));
            let own = owner.unwrap().instance.as_mut().unwrap();
            (own.revision, own.is_ready, own.leaves) = (Some(revision), true, false);
        }
    }
}

fn take(world: &mut World, decision: &Decision) {
    for step in decision.claims.iter().chain(&decision.create).chain(&decision.delete).chain(&decision.update) {
        carry_out(world, step);
    }
    world.pool.status = Some(decision.status.clone());
    // Who is released and not selected is seen no more; and what was about to go is gone.
    let is_seen = |member: &Member| member.controller().is_some() || member.labels.contains_key("app");
    world.members.retain(|member| is_seen(member) && !member.leaves);
    look(world);
}

/// A machine of the pool as it was before its template changed, in some state.
fn anyone(number: u32) -> impl Strategy<Value = Member> {
    (any::<[bool; 8]>(), 0_u32..5, 900_i64..1000).prop_map(move |(traits, failures, second)| {
        let [is_ready, leaves, is_selected, is_alone, is_new, has_instance, is_relabelled, is_retired] = traits;
        let (of_machine, of_instance) =
            (if is_new { after() } else { before() }, if is_relabelled { after() } else { before() });
        let mut member = member(&of_machine, number, second);
        (member.state.is_ready, member.state.failures) = (is_ready, failures);
        (member.leaves, member.is_retired) = (leaves, is_retired && !leaves);
        let own = member.instance.as_mut().unwrap();
        (own.is_ready, own.revision) = (is_ready, Some(names::revision_name(&of_instance)));
        if !has_instance {
            member.instance = None;
        }
        if is_alone {
            member.owners.clear();
        } else if !is_selected {
            // Others are not seen.
            member.labels.remove("app");
        }
        member
    })
}

fn before() -> VirtualMachinePool {
    pool(0, json!({}))
}

fn after() -> VirtualMachinePool {
    let mut after = before();
    let spec = after.spec.virtual_machine_template.spec.as_mut().unwrap();
    spec.template.spec.as_mut().unwrap().hostname = Some("second".to_owned());
    after
}

fn everyone() -> impl Strategy<Value = Vec<Member>> {
    (0_u32..8).prop_flat_map(|count| (0..count).map(anyone).collect::<Vec<_>>())
}

fn any_pool() -> impl Strategy<Value = VirtualMachinePool> {
    let scale_in = prop::sample::select(vec![
        json!({}),
        json!({"proactive": {"statePreservation": "Offline"}}),
        json!({"proactive": {"selectionPolicy": {"sortPolicy": "Oldest"}}}),
        json!({"unmanaged": {}}),
    ]);
    let update = prop::sample::select(vec![json!({}), json!({"opportunistic": {}}), json!({"unmanaged": {}})]);
    (0_i32..10, scale_in, update, any::<[bool; 3]>(), 1_i32..4).prop_map(|(wanted, scale_in, update, traits, most)| {
        let [is_paused, is_deleted, heals] = traits;
        let mut pool = after();
        pool.spec.replicas = Some(wanted);
        pool.spec.paused = Some(is_paused);
        pool.spec.scale_in_strategy = Some(serde_json::from_value(scale_in).unwrap());
        pool.spec.update_strategy = Some(serde_json::from_value(update).unwrap());
        pool.spec.max_unavailable = Some(serde_json::from_value(json!(most)).unwrap());
        pool.spec.autohealing = heals.then(|| serde_json::from_value(json!({})).unwrap());
        pool.metadata.deletion_timestamp = is_deleted.then(|| Time(Timestamp::from_second(1000).unwrap()));
        pool
    })
}

proptest! {
    /// Fixpoint: after a few looks nothing is left to do, and as many machines are there as are wanted.
    #[test]
    fn decisions_that_were_carried_out_leave_nothing_to_do(pool in any_pool(), members in everyone(), chance in any::<u64>()) {
        let mut world = world(pool, members);
        world.chance = chance;
        world.records.insert(names::revision_name(&before()), names::recorded(&before()));
        // What was about to go is gone.
        let first = decide(&world);
        take(&mut world, &first);
        let mut looks = 0;
        loop {
            let decision = decide(&world);
            if !decision.acts() {
                prop_assert_eq!(decision.recheck, None);
                break;
            }
            take(&mut world, &decision);
            looks += 1;
            prop_assert!(looks < 20, "it never ends: {:?}", decide(&world));
        }
        let rests = world.pool.spec.paused == Some(true) || world.pool.metadata.deletion_timestamp.is_some();
        let deletes = world.pool.spec.scale_in_strategy.as_ref().unwrap().unmanaged.is_none();
        let own = super::super::decide::own(&world.pool, &world.members);
        let staying = own.iter().filter(|member| member.stays()).count();
        if !rests {
            let wanted = names::wanted(&world.pool);
            prop_assert!(staying == wanted || (!deletes && staying > wanted), "{} of {}", staying, wanted);
        }
        let last = decide(&world);
        take(&mut world, &last);
        prop_assert_eq!(Some(decide(&world).status), world.pool.status);
    }

    /// No decision keeps more machines from being ready than are allowed to, beside those that are not.
    #[test]
    fn an_update_restarts_no_more_ready_machines_than_may_be_unavailable(members in everyone(), most in 1_i32..4, chance in any::<u64>()) {
        let mut pool = after();
        pool.spec.replicas = Some(i32::try_from(members.len()).unwrap());
        pool.spec.max_unavailable = Some(serde_json::from_value(json!(most)).unwrap());
        let mut world = world(pool, members);
        world.chance = chance;
        world.records.insert(names::revision_name(&before()), names::recorded(&before()));
        let ready = |uid: &str| {
            let mut instances = world.members.iter().filter_map(|member| member.instance.as_ref());
            instances.any(|own| own.uid == *uid && own.is_ready)
        };
        let restarted = decide(&world).update;
        let restarted = restarted.iter().filter(|step| matches!(step, Step::Restart { instance, .. } if ready(instance)));
        prop_assert!(restarted.count() <= usize::try_from(most).unwrap());
    }

    /// Names: whichever of the new machines a store knows already, the numbers of the others are those that were chosen before.
    #[test]
    fn a_store_that_lags_leads_to_names_that_are_taken(wanted in 0_i32..20, members in everyone(), seen in any::<u32>()) {
        let mut pool = after();
        pool.spec.replicas = Some(wanted);
        let before = world(pool.clone(), members);
        let create = created(&decide(&before));
        let is_seen = |place: usize| seen & (1_u32 << place) != 0;
        let mut after = before.clone();
        let (known, others): (Vec<_>, Vec<_>) = create.iter().enumerate().partition(|(place, _)| is_seen(*place));
        after.members.extend(known.into_iter().map(|(_, number)| member(&pool, *number, 1000)));
        look(&mut after);
        prop_assert_eq!(created(&decide(&after)), others.into_iter().map(|(_, number)| *number).collect::<Vec<_>>());
    }
}
