//! A setting that is made by being there: `masquerade: {}`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object without fields. It is written `{}`, and that it is there is all it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Present {}
