//! The links of a machine's cards, from what QEMU holds ([`Live`](super::live::Live)) to its status.

use std::collections::BTreeMap;
use std::sync::Arc;

use garboard_plan::{LaunchPlan, LinkState};
use garboard_protocol::control::Link;
use tokio::sync::{mpsc, watch};

use super::driver::Input;
use super::live::CardLinks;

/// The links by name of the interface, as a status has them.
pub(super) fn by_interface(plan: &LaunchPlan, links: &CardLinks) -> BTreeMap<String, Link> {
    let named = plan.interfaces.iter().filter_map(|interface| {
        let link = match links.get(&interface.device)? {
            LinkState::Up => Link::Up,
            LinkState::Down => Link::Down,
        };
        Some((interface.name.clone(), link))
    });
    named.collect()
}

/// Reports them whenever one changes.
pub(super) async fn report(
    mut links: watch::Receiver<CardLinks>,
    plan: Arc<LaunchPlan>,
    happened: mpsc::Sender<Input>,
) {
    while links.changed().await.is_ok() {
        let now = by_interface(&plan, &links.borrow_and_update());
        if happened.send(Input::LinksChanged(now)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_plan::live::{Change, Outcome};
    use serde_json::json;

    use super::super::live::Live;
    use super::*;

    #[tokio::test]
    async fn a_cable_that_is_pulled_and_plugged_is_reported_and_nothing_else_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/interfaces/plan.json");
        let mut plan: LaunchPlan = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        // Golden plans have their command line in a file beside them.
        let cards = plan.interfaces.iter().map(|each| format!("virtio-net-pci,id={}", each.device));
        plan.argv = cards.flat_map(|card| ["-device".to_owned(), card]).collect();
        let (plan, room) = (Arc::new(plan), tempfile::tempdir().unwrap());
        let live = Live::begin(room.path(), &plan);
        let mut links = live.links();
        let before = by_interface(&plan, &links.borrow_and_update());
        let planned = |state| plan.interfaces.iter().find(|each| each.link == state).unwrap();
        let (up, down) = (planned(LinkState::Up), planned(LinkState::Down));
        assert_eq!((before.len(), before[&up.name], before[&down.name]), (plan.interfaces.len(), Link::Up, Link::Down));
        let (happened, mut inbox) = mpsc::channel(4);
        tokio::spawn(report(links, Arc::clone(&plan), happened));
        let set = |name: &str, is_up: bool| {
            let change = Change::of("set_link", &json!({"name": name, "up": is_up}));
            live.intend(change.clone());
            live.settle(&change, Outcome::Done);
        };
        set(&up.device, true);
        for (is_up, link) in [(false, Link::Down), (true, Link::Up)] {
            set(&up.device, is_up);
            let Some(Input::LinksChanged(now)) = inbox.recv().await else { panic!("no links") };
            assert_eq!((now[&up.name], now[&down.name]), (link, Link::Down));
        }
        drop(live);
        assert!(inbox.recv().await.is_none(), "it ends with what QEMU holds");
    }
}
