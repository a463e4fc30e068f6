//! `kubectl-garboard`: the plugin alone, for computers that only connect to clusters. Wiring only.

use std::process::ExitCode;

use garboard_kubectl::Called;

fn main() -> ExitCode {
    match garboard_kubectl::called() {
        Called::Completer => garboard_kubectl::complete(),
        Called::Plugin | Called::Garboard => garboard_kubectl::main(),
    }
}
