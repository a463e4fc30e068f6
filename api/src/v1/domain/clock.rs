//! The clock and the timers of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `spec.domain.clock`: at most one of time zone and UTC is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Clock {
    /// The timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
    /// The machine's clock shows the time of this zone, such as `Europe/Vienna`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// The machine's clock shows UTC. Default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUTC>,
}

/// `spec.domain.clock.utc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClockOffsetUTC {
    /// Seconds the clock is ahead of UTC; negative: behind. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_seconds: Option<i32>,
}

/// `spec.domain.clock.timer`: a timer that is not written is as QEMU has it by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timer {
    /// High precision event timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<HPETTimer>,
    /// Hyper-V's reference counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<HypervTimer>,
    /// KVM's paravirtual clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KVMTimer>,
    /// Programmable interval timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<PITTimer>,
    /// Real-time clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<RTCTimer>,
}

/// `spec.domain.clock.timer.rtc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RTCTimer {
    /// Whether the guest has it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// What happens to timer ticks that the guest missed: `delay` or `catchup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
    /// The clock it follows: `guest` (stands still while the guest is stopped) or `wall` (the host's time).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<String>,
}

/// `spec.domain.clock.timer.pit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PITTimer {
    /// Whether the guest has it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// What happens to timer ticks that the guest missed: `delay`, `catchup` or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
}

/// `spec.domain.clock.timer.hpet`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HPETTimer {
    /// Whether the guest has it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// What happens to timer ticks that the guest missed: `delay`, `catchup`, `merge` or `discard`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
}

/// `spec.domain.clock.timer.kvm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KVMTimer {
    /// Whether the guest has it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `spec.domain.clock.timer.hyperv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HypervTimer {
    /// Whether the guest has it. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}
