//! The command with which a backup tool freezes and thaws a guest around its copy: a program of the launcher's image, in the container
//! of QEMU. Velero runs what the annotations of the launcher pod name, and only in a container of the pod that is no init container,
//! which the supervisor's is.

use crate::control::BackupStep;
use crate::pod::LAUNCHER_PROGRAM;

/// First argument of the command.
pub const ARGUMENT: &str = "--backup-hook";
/// How long a step may take, seconds: what an agent may take to freeze, and KubeVirt's time limit of Velero's hook.
pub const WITHIN_SECONDS: u32 = 60;
/// After how many seconds file systems are thawed although no backup tool asks for it; KubeVirt's.
pub const THAW_AFTER_SECONDS: u64 = 300;

/// The command of a step.
#[must_use]
pub fn command(step: BackupStep) -> [&'static str; 3] {
    [LAUNCHER_PROGRAM, ARGUMENT, name(step)]
}

/// The argument of a step.
#[must_use]
pub const fn name(step: BackupStep) -> &'static str {
    match step {
        BackupStep::Freeze => "freeze",
        BackupStep::Thaw => "thaw",
    }
}

/// The step of an argument.
#[must_use]
pub fn step(argument: &str) -> Option<BackupStep> {
    [BackupStep::Freeze, BackupStep::Thaw].into_iter().find(|step| name(*step) == argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_by_its_argument() {
        for each in [BackupStep::Freeze, BackupStep::Thaw] {
            assert_eq!(step(command(each)[2]), Some(each));
        }
        assert_eq!(step("unfreeze"), None);
    }
}
