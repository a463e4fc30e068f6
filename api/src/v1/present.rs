//! A setting that is made by being there: `masquerade: {}`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object without fields. It is written `{}`; it means only that it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Present {}
