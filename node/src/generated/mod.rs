//! Generated code: `UPDATE_GENERATED=1 cargo test -p garboard-node --test generated` writes it.

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]
#[rustfmt::skip]
pub mod v1beta1;
