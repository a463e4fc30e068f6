//! The answer of a route whose subject is not in this version: what exists is looked at as KubeVirt does.

use garboard_subresources::not_here::{Found, Needs, NotHere};
use garboard_subresources::refusal::Refusal;
use garboard_subresources::route::Call;

use super::answer::machine;
use super::instance::instance;
use super::server::Serving;

/// The refusal: that of the route, unless what it is about cannot be read.
pub(super) async fn refusal(serving: &Serving, call: &Call<'_>, what: NotHere) -> Refusal {
    answer(serving, call, what).await.unwrap_or_else(|unread| unread)
}

async fn answer(serving: &Serving, call: &Call<'_>, what: NotHere) -> Result<Refusal, Refusal> {
    let needs = what.needs();
    let vm = match needs {
        Needs::Machine | Needs::MachineAndItsInstance => Some(machine(serving, call).await?),
        Needs::Nothing | Needs::Instance => None,
    };
    let vmi = match needs {
        Needs::Instance => Some(instance(serving, call).await?),
        Needs::MachineAndItsInstance => Some(instance(serving, call).await.map_err(of_machine)?),
        Needs::Nothing | Needs::Machine => None,
    };
    Ok(what.refusal(Found { vm: vm.as_ref(), vmi: vmi.as_ref() }))
}

/// The path names the machine; the missing object is its instance.
fn of_machine(refusal: Refusal) -> Refusal {
    if refusal == Refusal::NotFound { Refusal::NoInstance } else { refusal }
}
