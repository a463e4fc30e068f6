//! The status of a KubeVirt object. Pure.

use std::sync::Arc;

use garboard_api::ClusterConfig;
use garboard_api::conditions::{self, KubeVirtConditionType, NewCondition, Reason};
use garboard_api::v1::{KubeVirt, KubeVirtCondition, KubeVirtStatus};
use jiff::Timestamp;

/// How many pods of a part there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodCounts {
    /// As many as there should be.
    pub wanted: i32,
    /// Of this version.
    pub updated: i32,
    /// Ready.
    pub ready: i32,
}

/// Everything the status depends on.
#[derive(Clone, Debug)]
pub struct World {
    /// The object.
    pub object: KubeVirt,
    /// Why its settings are not those of the cluster, if they are not.
    pub stray: Option<NotInEffect>,
    /// The controller, unless it runs outside the cluster.
    pub controller: Option<PodCounts>,
    /// The node agents.
    pub nodes: Option<PodCounts>,
    /// What counts in the cluster.
    pub config: Arc<ClusterConfig>,
    /// The version that runs.
    pub version: &'static str,
    /// When it was looked at.
    pub now: Timestamp,
}

/// Why the settings of an object do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInEffect {
    /// An older object of the installation's namespace holds them.
    Younger,
    /// It is in another namespace than the installation.
    Elsewhere,
}

impl NotInEffect {
    const fn message(self) -> &'static str {
        match self {
            Self::Younger => "an older KubeVirt object holds the settings of the cluster; delete this one",
            Self::Elsewhere => {
                "only a KubeVirt object in the namespace of Garboard holds the settings of the cluster; delete this one"
            }
        }
    }
}

/// Decides.
#[must_use]
pub fn decide(world: &World) -> KubeVirtStatus {
    let parts = [("controller", world.controller), ("node agent", world.nodes)];
    let missing: Vec<String> = parts.iter().filter_map(|(name, part)| lack(name, *part)).collect();
    let serves = world.controller.is_none_or(|part| part.ready > 0) && world.nodes.is_some_and(|part| part.ready > 0);
    let rolls = parts.iter().any(|(_, part)| part.is_some_and(|part| part.updated < part.wanted));
    let why = missing.join("; ");
    KubeVirtStatus {
        conditions: conditions(world, &Health { serves, rolls, is_degraded: !missing.is_empty(), why }),
        default_architecture: Some(world.config.default_architecture.clone()),
        observed_generation: world.object.metadata.generation,
        observed_kube_virt_version: Some(world.version.to_owned()),
        operator_version: Some(world.version.to_owned()),
        outdated_virtual_machine_instance_workloads: None,
        phase: Some(if serves { "Deployed" } else { "Deploying" }.to_owned()),
    }
}

fn lack(name: &str, part: Option<PodCounts>) -> Option<String> {
    match part {
        Some(part) if part.ready >= part.wanted && part.wanted > 0 => None,
        Some(part) => Some(format!("{} of {} pods of the {name} are ready", part.ready, part.wanted)),
        None if name == "controller" => None,
        None => Some(format!("there is no {name}")),
    }
}

/// How the installation does.
struct Health {
    /// Controller and node agents work.
    serves: bool,
    /// Pods of another version are being replaced.
    rolls: bool,
    /// Pods are missing.
    is_degraded: bool,
    /// Which ones.
    why: String,
}

fn conditions(world: &World, health: &Health) -> Vec<KubeVirtCondition> {
    let why = health.why.as_str();
    let with = |kind, holds, reason| NewCondition::new(kind, holds, reason, why);
    let new = match world.stray {
        None => vec![
            match health.serves {
                true => NewCondition::new(KubeVirtConditionType::Available, true, Reason::AllComponentsReady, ""),
                false => with(KubeVirtConditionType::Available, false, Reason::NotServing),
            },
            NewCondition::new(KubeVirtConditionType::Created, true, Reason::AllResourcesCreated, ""),
            match health.is_degraded {
                true => with(KubeVirtConditionType::Degraded, true, Reason::PartsMissing),
                false => NewCondition::bare(KubeVirtConditionType::Degraded, false),
            },
            match health.rolls {
                true => with(KubeVirtConditionType::Progressing, true, Reason::UpdateInProgress),
                false => NewCondition::bare(KubeVirtConditionType::Progressing, false),
            },
        ],
        Some(stray) => {
            let (available, reason) = (KubeVirtConditionType::Available, Reason::ExistingDeployment);
            vec![NewCondition::new(available, false, reason, stray.message())]
        }
    };
    let before = world.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    new.iter().map(|new| conditions::made(new, before, world.now)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(controller: i32, nodes: i32) -> World {
        let part = |ready| Some(PodCounts { wanted: 2, updated: 2, ready });
        World {
            object: KubeVirt::default(),
            stray: None,
            controller: part(controller),
            nodes: part(nodes),
            config: ClusterConfig::offline().into(),
            version: "1.0.0",
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn conditions(status: &KubeVirtStatus) -> String {
        let each = status.conditions.iter().map(|condition| format!("{}={}", condition.r#type, condition.status));
        each.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn conditions_follow_the_parts() {
        let status = |controller, nodes| conditions(&decide(&world(controller, nodes)));
        assert_eq!(status(2, 2), "Available=True Created=True Degraded=False Progressing=False");
        assert_eq!(status(1, 2), "Available=True Created=True Degraded=True Progressing=False");
        assert_eq!(status(2, 0), "Available=False Created=True Degraded=True Progressing=False");
        assert_eq!(decide(&world(2, 0)).phase.as_deref(), Some("Deploying"));
    }

    #[test]
    fn a_second_object_has_no_effect_and_reports_it() {
        for stray in [NotInEffect::Younger, NotInEffect::Elsewhere] {
            let status = decide(&World { stray: Some(stray), ..world(2, 2) });
            assert_eq!(conditions(&status), "Available=False");
            assert_eq!(status.conditions[0].message.as_deref(), Some(stray.message()));
        }
    }

    #[test]
    fn what_is_decided_stays() {
        let mut world = world(1, 2);
        world.object.status = Some(decide(&world));
        world.now = Timestamp::from_second(5000).unwrap();
        assert_eq!(Some(decide(&world)), world.object.status);
    }
}
