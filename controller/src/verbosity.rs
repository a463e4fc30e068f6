//! How much this controller logs, as the settings say, while it runs.
//!
//! What answers API servers has KubeVirt's number of `virtAPI`, which is a program of its own there; all else has that of
//! `virtController`.

use garboard_api::cluster::{LoggingPart, verbosity};
use garboard_log::{Levels, Outcome, USUAL, level, targets};
use tokio::sync::watch;
use tracing_subscriber::filter::Targets;

use crate::settings::Settings;

/// The modules that answer API servers.
const OF_API: [&str; 2] = ["garboard_controller::subresources", "garboard_controller::webhook"];

/// The two numbers of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    api: u32,
    controller: u32,
}

impl Numbers {
    fn of(settings: &Settings, node: &str) -> Self {
        let of = |part| verbosity(settings.object.as_deref(), part, node).unwrap_or(USUAL);
        Self { api: of(LoggingPart::Api), controller: of(LoggingPart::Controller) }
    }

    fn targets(self) -> Targets {
        OF_API.into_iter().fold(targets(self.controller), |all, module| all.with_target(module, level(self.api)))
    }
}

/// Follows the settings until the process ends. `node` is the one it runs on; empty where that is not known.
pub async fn follow(levels: Levels, mut settings: watch::Receiver<Settings>, node: String) {
    let mut before = Numbers { api: USUAL, controller: USUAL };
    loop {
        let numbers = Numbers::of(&settings.borrow_and_update(), &node);
        // The first levels differ from those of the start only in that they name the modules: nothing that is logged changes by that.
        if levels.set(numbers.targets()) == Outcome::Set && numbers != before {
            let Numbers { api, controller } = numbers;
            tracing::info!(api, controller, "log levels changed");
        }
        before = numbers;
        if settings.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use garboard_api::cluster::Emulation;
    use garboard_api::v1::KubeVirt;
    use serde_json::{Value, json};
    use tracing::Level;

    use super::*;
    use crate::settings::Defaults;

    fn settings(written: &Value) -> Settings {
        let object: KubeVirt = serde_json::from_value(json!({
            "metadata": {"name": "kubevirt", "namespace": "garboard"},
            "spec": {"configuration": {"developerConfiguration": {"logVerbosity": written}}},
        }))
        .unwrap();
        let defaults = Defaults { emulation: Emulation::Refused, image_pull_policy: "Never".to_owned() };
        Settings::of([&object], "garboard", &defaults)
    }

    fn logs(written: &Value, target: &str, level: Level) -> bool {
        Numbers::of(&settings(written), "n").targets().would_enable(target, &level)
    }

    /// The targets of the constant are modules that there are.
    #[test]
    fn what_answers_api_servers_has_a_number_of_its_own() {
        let webhook = std::any::type_name::<crate::webhook::paths::Paths>();
        let reconciler = std::any::type_name::<crate::reconciler::Pause>();
        let (api, controller) = (json!({"virtAPI": 6}), json!({"virtController": 4}));
        assert!(logs(&api, webhook, Level::TRACE) && !logs(&api, reconciler, Level::DEBUG));
        assert!(logs(&controller, reconciler, Level::DEBUG) && !logs(&controller, webhook, Level::DEBUG));
        assert!(logs(&api, "garboard_controller::subresources::answer", Level::DEBUG));
        for part in [&api, &controller] {
            assert!(!logs(part, "kube_client::client", Level::DEBUG));
        }
    }

    #[test]
    fn the_number_of_its_node_counts_for_both() {
        let written = json!({"virtAPI": 1, "nodeVerbosity": {"n": 6, "other": 4}});
        assert_eq!(Numbers::of(&settings(&written), "n"), Numbers { api: 6, controller: 6 });
        assert_eq!(Numbers::of(&settings(&written), ""), Numbers { api: 1, controller: USUAL });
    }

    #[tokio::test]
    async fn settings_that_change_change_the_levels_and_back() {
        let (_filter, levels) = garboard_log::filter::<tracing_subscriber::Registry>(None);
        let (sender, receiver) = watch::channel(settings(&json!({})));
        let following = tokio::spawn(follow(levels.clone(), receiver, "n".to_owned()));
        for (written, controller) in [(json!({"virtController": 6}), 6), (json!({}), USUAL)] {
            sender.send_replace(settings(&written));
            // There is one thread: the other task has its turns, and waits again.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let expected = Numbers { api: USUAL, controller }.targets();
            assert_eq!(levels.set(expected), Outcome::AlreadySo, "{written}");
        }
        drop(sender);
        following.await.unwrap();
    }
}
