//! Finding the instancetypes and the preferences that machines name, for the webhooks, the subresource API and the reconciler of
//! machines. They are asked for when they are needed: no watch and no store. A machine that runs needs neither.

mod find;
mod infer;

pub(crate) use find::find;
pub use find::{Found, KeptCopy};
pub(crate) use infer::infer;
