//! `garboard qmp`: one command or a session, through the supervisor's debug broker.

use garboard_kubectl::qmp::{history_in, run_session};

use crate::args::QmpArgs;
use crate::client;
use garboard_shim_client::places::Places;

/// `garboard qmp MACHINE [COMMAND [JSON]]`.
pub(crate) fn run(args: &QmpArgs) -> anyhow::Result<u8> {
    let places = args.here.places()?;
    let machine = args.here.id(&args.machine)?;
    let history = history_in(&Places::of_caller(None)?.state);
    run_session(client::line(&places, &machine)?, &args.task, Some(history))
}
