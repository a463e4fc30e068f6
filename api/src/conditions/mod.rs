//! Conditions of an object's status: their types and reasons, and how one is set. Pure.
//!
//! A status holds conditions of several programs and versions. Setting or removing one leaves all others as they are, in
//! their order, also those whose type is not known here.

mod reason;
mod types;

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use reason::Reason;
pub use types::{
    ConditionWriter, DataVolumeConditionType, KubeVirtConditionType, NodeConditionType, PodConditionType,
    PoolConditionType, ReplicaSetConditionType, VmConditionType, VmiConditionType,
};

use crate::name_enum::name_enum;
use crate::v1::{
    KubeVirtCondition, VirtualMachineCondition, VirtualMachineInstanceCondition,
    VirtualMachineInstanceReplicaSetCondition, VirtualMachinePoolCondition,
};

name_enum! {
    /// Whether a condition holds.
    ConditionStatus {
        /// It does.
        True = "True",
        /// It does not.
        False = "False",
        /// That is not known.
        Unknown = "Unknown",
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// What a condition is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition<'a, T> {
    /// Its type.
    pub kind: T,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// For programs: one of [`Reason`], or another program's; empty for none.
    pub reason: Cow<'a, str>,
    /// For people; empty for none.
    pub message: Cow<'a, str>,
}

impl<'a, T> NewCondition<'a, T> {
    /// A condition with a reason of ours.
    pub fn new(kind: T, status: impl Into<ConditionStatus>, reason: Reason, message: impl Into<Cow<'a, str>>) -> Self {
        Self { kind, status: status.into(), reason: reason.name().into(), message: message.into() }
    }

    /// A condition without reason and message.
    pub fn bare(kind: T, status: impl Into<ConditionStatus>) -> Self {
        Self { kind, status: status.into(), reason: "".into(), message: "".into() }
    }
}

/// One change of a list of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionChange<'a, T> {
    /// A condition of this status.
    Set(NewCondition<'a, T>),
    /// It is not there.
    Remove(T),
}

/// A condition of one kind of object.
pub trait Condition: Clone + Default {
    /// The types that this object's conditions can have.
    type Type: Copy + Into<&'static str>;

    /// The name of its type.
    fn kind(&self) -> &str;
    /// Its status: `True`, `False` or `Unknown`.
    fn status(&self) -> &str;
    /// Its reason.
    fn reason(&self) -> Option<&str>;
    /// Takes the values of `new`; its transition was at `since`.
    fn set(&mut self, new: &NewCondition<'_, Self::Type>, since: Option<Time>);
    /// When its status changed.
    fn since(&self) -> Option<&Time>;
}

macro_rules! condition {
    ($condition:ty, $kind:ty) => {
        impl Condition for $condition {
            type Type = $kind;

            fn kind(&self) -> &str {
                &self.r#type
            }

            fn status(&self) -> &str {
                &self.status
            }

            fn reason(&self) -> Option<&str> {
                self.reason.as_deref()
            }

            fn since(&self) -> Option<&Time> {
                self.last_transition_time.as_ref()
            }

            fn set(&mut self, new: &NewCondition<'_, Self::Type>, since: Option<Time>) {
                let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
                self.r#type = new.kind.name().to_owned();
                self.status = new.status.name().to_owned();
                self.reason = text(&new.reason);
                self.message = text(&new.message);
                self.last_transition_time = since;
            }
        }
    };
}

condition!(VirtualMachineInstanceCondition, VmiConditionType);
condition!(VirtualMachineCondition, VmConditionType);
condition!(VirtualMachineInstanceReplicaSetCondition, ReplicaSetConditionType);
condition!(VirtualMachinePoolCondition, PoolConditionType);
condition!(KubeVirtCondition, KubeVirtConditionType);

/// The condition of a type.
pub fn find<C: Condition>(conditions: &[C], kind: C::Type) -> Option<&C> {
    let name: &str = kind.into();
    conditions.iter().find(|each| each.kind() == name)
}

/// The condition of a type, if it has this status.
pub fn find_with<C: Condition>(conditions: &[C], kind: C::Type, status: ConditionStatus) -> Option<&C> {
    find(conditions, kind).filter(|each| each.status() == status.name())
}

/// A condition as it is to be, after those of `before`: its transition is as long ago as its status is the same
/// (Kubernetes' rule), whatever its reason and message are.
pub fn made<C: Condition>(new: &NewCondition<'_, C::Type>, before: &[C], now: Timestamp) -> C {
    let mut condition = find(before, new.kind).cloned().unwrap_or_default();
    let same = Some(&condition).filter(|old| old.status() == new.status.name());
    let since = same.and_then(|old| old.since().cloned()).unwrap_or_else(|| stamp(now));
    condition.set(new, Some(since));
    condition
}

/// Sets a condition: where it is, or at the end.
pub fn set<C: Condition>(conditions: &mut Vec<C>, new: &NewCondition<'_, C::Type>, now: Timestamp) {
    let condition = made(new, conditions, now);
    match conditions.iter_mut().find(|each| each.kind() == condition.kind()) {
        Some(each) => *each = condition,
        None => conditions.push(condition),
    }
}

/// Removes a condition.
pub fn remove<C: Condition>(conditions: &mut Vec<C>, kind: C::Type) {
    let name: &str = kind.into();
    conditions.retain(|each| each.kind() != name);
}

/// Makes changes, in their order.
pub fn change<'a, C: Condition>(
    conditions: &mut Vec<C>,
    changes: impl IntoIterator<Item = ConditionChange<'a, C::Type>>,
    now: Timestamp,
) {
    for each in changes {
        match each {
            ConditionChange::Set(new) => set(conditions, &new, now),
            ConditionChange::Remove(kind) => remove(conditions, kind),
        }
    }
}

/// An instant as Kubernetes writes it: whole seconds.
#[must_use]
pub fn stamp(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

#[cfg(test)]
mod tests;
