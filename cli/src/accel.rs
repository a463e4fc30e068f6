//! The option `--accel`.

use clap::ValueEnum;
use garboard_plan::AcceleratorChoice;

/// What executes the guest's instructions, unless its annotation `garboard.dev/accelerator` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelChoice {
    /// KVM where it runs guest code natively, else TCG, with a note on standard error.
    Auto,
    /// KVM, or an error.
    Kvm,
    /// TCG.
    Tcg,
}

impl From<AccelChoice> for AcceleratorChoice {
    fn from(choice: AccelChoice) -> Self {
        match choice {
            AccelChoice::Auto => Self::Auto,
            AccelChoice::Kvm => Self::Kvm,
            AccelChoice::Tcg => Self::Tcg,
        }
    }
}
