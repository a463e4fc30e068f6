//! Fields that Garboard does not support: see the table of fields. Admission refuses it first; here it is refused again,
//! because nothing that a manifest asks for may be dropped on the way to QEMU, and some clusters run without their webhooks.

use garboard_api::fields::{self, Setting};

use super::draft::Input;
use super::error::PlanError;

/// What a network is made of is no matter of the plan, which makes cards: admission and the controller refuse it.
const NETWORKS: &str = "spec.networks[";

/// Refuses the first field that no plan can honour. What only a pod cannot honour is refused where pods are made.
pub(super) fn refuse(input: Input<'_>) -> Result<(), PlanError> {
    let refused = fields::refused(input.spec(), Setting::BareHost);
    match refused.into_iter().find(|fault| !fault.path.as_str().starts_with(NETWORKS)) {
        None => Ok(()),
        Some(fault) => Err(PlanError::NotInThisVersion {
            field: fault.path.to_string(),
            why: fault.message,
            instead: fault.instead.unwrap_or_default(),
        }),
    }
}
