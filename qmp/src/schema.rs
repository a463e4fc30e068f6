//! What this QEMU offers, from `query-qmp-schema`: the question. What is made of the answer is in `garboard-qmp-commands`.
//!
//! For: completion and documentation in `garboard qmp`, and for probing what a QEMU can do, once per QEMU build. Not
//! for the supervisor: the reply of QEMU 7.2 has 207 009 bytes, and what is kept of it about twice that.

pub use garboard_qmp_commands::schema::{Malformed, Member, Schema};

use crate::command::Request;
use crate::connection::Monitor;
use crate::error::CallError;
use crate::qmp;

/// Why a schema could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// `query-qmp-schema` failed.
    #[error("could not query QEMU's schema")]
    Call(#[source] CallError),
    /// The reply is no schema.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Monitor {
    /// Asks QEMU for its schema. Costs half a megabyte of memory while it is kept.
    pub async fn schema(&self) -> Result<Schema, SchemaError> {
        let reply = self.send(Request::of(&qmp::query_qmp_schema {})).await.map_err(SchemaError::Call)?;
        Ok(Schema::parse(reply.get())?)
    }
}
