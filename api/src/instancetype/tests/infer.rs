//! What volumes name.

use serde_json::{Value, json};

use crate::instancetype::Role;
use crate::instancetype::infer::{self, Look, Next, Source};
use crate::v1::VirtualMachine;

/// A machine that infers both from its volume `root`.
fn inferring(volume: Value, policy: Option<&str>, templates: Value) -> VirtualMachine {
    let matcher = json!({"inferFromVolume": "root", "inferFromVolumeFailurePolicy": policy});
    let mut volume = volume;
    volume["name"] = json!("root");
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"instancetype": matcher, "preference": matcher, "dataVolumeTemplates": templates,
            "template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}, "volumes": [volume]}}},
    }))
    .unwrap()
}

/// What a machine infers in a world of objects, by kind and name; and what was looked at.
fn inferred(vm: &VirtualMachine, role: Role, world: &[(&str, Value)]) -> (Next, Vec<String>) {
    let mut next = infer::begin(vm, &infer::is_due(vm, role).unwrap());
    let mut looks = Vec::new();
    while let Next::Look(look) = &next {
        let key = format!("{} {}/{}", look.source.kind(), look.namespace, look.name);
        let found = world.iter().find(|(known, _)| *known == key).map(|(_, object)| object);
        next = infer::follow(look, found, role, "shop");
        looks.push(key);
    }
    (next, looks)
}

fn labels() -> Value {
    json!({"metadata": {"labels": {
        "instancetype.kubevirt.io/default-instancetype": "u1.small",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
        "instancetype.kubevirt.io/default-preference": "fedora",
    }}})
}

#[test]
fn a_volume_names_what_is_behind_it() {
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let data = json!({"dataVolume": {"name": "d"}});
    let copies = json!({"spec": {"source": {"pvc": {"name": "c", "namespace": "images"}}}});
    let refers = json!({"spec": {"sourceRef": {"kind": "DataSource", "name": "s", "namespace": "images"}}});
    let template = |spec: &Value| json!([{"metadata": {"name": "d"}, "spec": spec["spec"]}]);
    let of_source = json!({"spec": {"source": {"pvc": {"name": "c", "namespace": "images"}}}});
    let snapped = json!({"spec": {"source": {"snapshot": {"name": "c", "namespace": "images"}}}});
    let (in_shop, in_images) = ("PersistentVolumeClaim shop/c", "PersistentVolumeClaim images/c");
    let snapshot = "VolumeSnapshot images/c";
    let (volume, source) = ("DataVolume shop/d", "DataSource images/s");
    let none = json!([]);
    let table = [
        (&claim, none.clone(), vec![(in_shop, labels())]),
        (&data, none.clone(), vec![(volume, labels())]),
        (&data, none.clone(), vec![(volume, copies.clone()), (in_images, labels())]),
        (&data, none.clone(), vec![(volume, refers.clone()), (source, labels())]),
        (&data, none.clone(), vec![(volume, refers.clone()), (source, of_source.clone()), (in_images, labels())]),
        (&data, template(&copies), vec![(in_images, labels())]),
        (&data, template(&refers), vec![(source, labels())]),
        (&data, template(&refers), vec![(source, of_source), (in_images, labels())]),
        (&data, none.clone(), vec![(volume, snapped.clone()), (snapshot, labels())]),
        (&data, template(&snapped), vec![(snapshot, labels())]),
        (&data, template(&refers), vec![(source, snapped), (snapshot, labels())]),
    ];
    for (volume, templates, world) in table {
        let vm = inferring(volume.clone(), None, templates);
        let (found, looks) = inferred(&vm, Role::Instancetype, &world);
        let (name, kind) = ("u1.small".to_owned(), "VirtualMachineInstancetype".to_owned());
        assert_eq!(found, Next::Named { name, kind }, "{volume} {world:?}");
        assert_eq!(looks, world.iter().map(|(key, _)| (*key).to_owned()).collect::<Vec<_>>());
        let (found, _) = inferred(&vm, Role::Preference, &world);
        assert_eq!(found, Next::Named { name: "fedora".to_owned(), kind: String::new() });
    }
    let gone = [("PersistentVolumeClaim shop/d", labels())];
    let (found, looks) = inferred(&inferring(data, None, none), Role::Preference, &gone);
    assert!(matches!(found, Next::Named { .. }), "the DataVolume was removed once it was filled");
    assert_eq!(looks, [volume, "PersistentVolumeClaim shop/d"]);
}

#[test]
fn what_names_nothing_is_ignored_or_refused_as_the_policy_has_it() {
    let bare = json!({"metadata": {}});
    let disk = json!({"containerDisk": {"image": "i"}});
    let claim = json!({"persistentVolumeClaim": {"claimName": "c"}});
    let data = json!({"dataVolume": {"name": "d"}});
    let http = json!({"spec": {"source": {"http": {"url": "http://x.example"}}}});
    let other = json!({"spec": {"sourceRef": {"kind": "Other", "name": "s"}}});
    let snapped = json!({"spec": {"source": {"snapshot": {"name": "s"}}}});
    type Row<'a> = (&'a Value, Vec<(&'a str, Value)>, bool);
    let table: [Row<'_>; 8] = [
        (&disk, vec![], true),
        (&claim, vec![("PersistentVolumeClaim shop/c", bare.clone())], true),
        (&claim, vec![], false),
        (&data, vec![], false),
        (&data, vec![("DataVolume shop/d", http)], true),
        (&data, vec![("DataVolume shop/d", other)], true),
        (&data, vec![("DataVolume shop/d", snapped.clone()), ("VolumeSnapshot shop/s", bare)], true),
        (&data, vec![("DataVolume shop/d", snapped)], false),
    ];
    for (volume, world, is_ignorable) in table {
        for policy in [None, Some("Reject"), Some("Ignore")] {
            let mut vm = inferring(volume.clone(), policy, json!([]));
            let (found, _) = inferred(&vm, Role::Preference, &world);
            let Next::Nothing(problem) = &found else { panic!("{volume} {world:?}: {found:?}") };
            assert_eq!(problem.is_ignorable, is_ignorable, "{volume} {world:?}");
            let settled = infer::settle(&mut vm, Role::Preference, found);
            assert_eq!(settled.is_ok(), is_ignorable && policy == Some("Ignore"), "{volume} {policy:?}");
            assert_eq!(vm.spec.preference.is_none(), settled.is_ok());
        }
    }
}

#[test]
fn what_is_inferred_takes_the_place_of_the_volume() {
    for (policy, keeps) in [(Some("Ignore"), false), (None, true)] {
        let mut vm = inferring(json!({"persistentVolumeClaim": {"claimName": "c"}}), policy, json!([]));
        let world = [("PersistentVolumeClaim shop/c", labels())];
        for role in Role::BOTH {
            let (found, _) = inferred(&vm, role, &world);
            infer::settle(&mut vm, role, found).unwrap();
        }
        let written = serde_json::to_value(&vm.spec).unwrap();
        assert_eq!(written["instancetype"], json!({"name": "u1.small", "kind": "VirtualMachineInstancetype"}));
        assert_eq!(written["preference"], json!({"name": "fedora"}));
        let memory = &written["template"]["spec"]["domain"]["memory"];
        assert_eq!(memory.is_null(), !keeps, "a size for the case that nothing is named");
        assert!(infer::is_due(&vm, Role::Instancetype).is_none());
    }
    let both: VirtualMachine =
        serde_json::from_value(json!({"spec": {"instancetype": {"name": "a", "inferFromVolume": "root"}}})).unwrap();
    assert!(infer::is_due(&both, Role::Instancetype).is_none(), "the rules refuse it");
    let look = Look { source: Source::Claim, namespace: "n".to_owned(), name: "c".to_owned() };
    assert!(matches!(infer::follow(&look, None, Role::Preference, "n"), Next::Nothing(_)));
}

#[test]
fn a_kind_that_the_cluster_does_not_have_is_named() {
    let look = |source: Source| Look { source, namespace: "images".to_owned(), name: "s".to_owned() };
    for (source, lacking) in
        [(Source::Snapshot, "volumesnapshots.snapshot.storage.k8s.io"), (Source::DataSource, "Data Importer")]
    {
        let Next::Nothing(problem) = infer::unserved(&look(source), Role::Preference, "shop") else {
            panic!("{source:?} leads on")
        };
        assert!(!problem.is_ignorable && problem.message.contains(lacking), "{}", problem.message);
        assert!(problem.message.contains(&format!("{} images/s", source.kind())), "{}", problem.message);
    }
    let next = infer::unserved(&look(Source::DataVolume), Role::Preference, "shop");
    assert_eq!(next, Next::Look(look(Source::Claim)), "one that was filled before the importer went");
}
