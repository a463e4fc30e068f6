//! A ruleset of Landlock for a program that is executed, on top of what holds for its parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use landlock::RulesetCreated;

/// Has the program begin under these rules. For a process of one thread.
pub(crate) fn restrict(command: &mut Command, rules: RulesetCreated) {
    let mut rules = Some(rules);
    // SAFETY: the parent has one thread, so nothing is locked or half done in the child; what is called are system calls
    // of Landlock and the release of a descriptor.
    unsafe {
        command.pre_exec(move || match rules.take() {
            Some(rules) => rules.restrict_self().map(|_| ()).map_err(io::Error::other),
            None => Ok(()),
        });
    }
}
