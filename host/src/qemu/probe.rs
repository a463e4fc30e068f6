//! Asks a QEMU what it can do.
//!
//! Only questions whose answers are facts: which types exist, which properties they have, what the schema lists. Never
//! the version number, which does not show what a distribution removed, added or put into a package of its own.

use std::collections::{BTreeMap, BTreeSet};

use garboard_machine::features::{Accelerator, Feature, MachineType, QemuFeatures, QemuVersion};
use garboard_qmp::qmp;
use serde::{Deserialize, Serialize};

use super::locate::QemuBinary;
use super::schema::SchemaAnswers;
use super::session::{Session, SessionError, TIME_LIMIT};

/// What a build can do, and which CPU features it gives a guest under the accelerator it was asked with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BuildAnswers {
    pub(super) features: QemuFeatures,
    /// `None` if it has no TCG.
    pub(super) tcg_cpu: Option<BTreeSet<String>>,
}

/// Asks everything that depends on the build alone. One start, about 150 ms.
pub(super) fn ask_build(binary: &QemuBinary) -> Result<BuildAnswers, SessionError> {
    // TCG first: it needs nothing of the host. A build without it (Red Hat's on some architectures, Debian's microvm
    // flavour) falls back to KVM, and without /dev/kvm to qtest, which executes nothing but answers.
    let mut session = Session::start(binary, &["tcg", "kvm", "qtest"], TIME_LIMIT)?;
    let accelerators = accelerators(&mut session)?;
    let features = QemuFeatures {
        version: version(&mut session)?,
        machines: machines(&mut session)?,
        devices: types(&mut session, "device")?,
        objects: types(&mut session, "user-creatable")?,
        cpu_models: cpu_models(&mut session)?,
        ..abilities(&mut session)?
    };
    let tcg_cpu = if accelerators.contains(&Accelerator::Tcg) { Some(cpu_features(&mut session)?) } else { None };
    Ok(BuildAnswers { features: QemuFeatures { accelerators, ..features }, tcg_cpu })
}

/// Asks which CPU features a guest gets under KVM: depends on processor and kernel too.
pub(super) fn ask_kvm_cpu(binary: &QemuBinary) -> Result<BTreeSet<String>, SessionError> {
    cpu_features(&mut Session::start(binary, &["kvm"], TIME_LIMIT)?)
}

fn version(session: &mut Session) -> Result<QemuVersion, SessionError> {
    #[derive(Deserialize)]
    struct Reply {
        qemu: Triple,
        package: String,
    }
    #[derive(Deserialize)]
    struct Triple {
        major: u32,
        minor: u32,
        micro: u32,
    }
    let Reply { qemu, package } = session.ask(&qmp::query_version {})?;
    Ok(QemuVersion { major: qemu.major, minor: qemu.minor, micro: qemu.micro, package })
}

fn accelerators(session: &mut Session) -> Result<BTreeSet<Accelerator>, SessionError> {
    let types = types(session, "accel")?;
    let present = |accelerator: &Accelerator| types.contains(&format!("{}-accel", accelerator.as_str()));
    Ok([Accelerator::Kvm, Accelerator::Tcg].into_iter().filter(present).collect())
}

fn machines(session: &mut Session) -> Result<Vec<MachineType>, SessionError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Machine {
        name: String,
        alias: Option<String>,
        cpu_max: u32,
        #[serde(default)]
        deprecated: bool,
    }
    let listed: Vec<Machine> = session.ask(&qmp::query_machines { compat_props: None })?;
    let mut machines: Vec<MachineType> = listed
        .into_iter()
        .map(|Machine { name, alias, cpu_max, deprecated }| MachineType { name, alias, max_vcpus: cpu_max, deprecated })
        .collect();
    machines.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(machines)
}

/// Asks which CPU models a guest can have under an accelerator, and what of each it would not get.
pub(super) fn ask_models(
    binary: &QemuBinary,
    accelerator: Accelerator,
) -> Result<BTreeMap<String, BTreeSet<String>>, SessionError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Model {
        name: String,
        #[serde(default)]
        unavailable_features: BTreeSet<String>,
    }
    let mut session = Session::start(binary, &[accelerator.as_str()], TIME_LIMIT)?;
    let listed: Vec<Model> = session.ask(&qmp::query_cpu_definitions {})?;
    Ok(listed.into_iter().map(|model| (model.name, model.unavailable_features)).collect())
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn types(session: &mut Session, implements: &str) -> Result<BTreeSet<String>, SessionError> {
    let question = qmp::qom_list_types { implements: Some(implements.to_owned()), abstract_: Some(false) };
    let listed: Vec<Named> = session.ask(&question)?;
    Ok(listed.into_iter().map(|entry| entry.name).collect())
}

fn cpu_models(session: &mut Session) -> Result<BTreeSet<String>, SessionError> {
    let listed: Vec<Named> = session.ask(&qmp::query_cpu_definitions {})?;
    Ok(listed.into_iter().map(|entry| entry.name).collect())
}

/// Everything that is found in the schema, the option groups or the properties of a type.
fn abilities(session: &mut Session) -> Result<QemuFeatures, SessionError> {
    let schema = session.ask_raw(&qmp::query_qmp_schema {}, SchemaAnswers::read)?;
    let groups = option_groups(session)?;
    let mut options = BTreeSet::new();
    let mut found = |present: bool, feature: Feature| {
        if present {
            options.insert(feature);
        }
    };
    found(schema.netdevs.contains("stream"), Feature::NetdevJson);
    found(schema.device_add_features.contains("json-cli-hotplug"), Feature::JsonCliHotplug);
    found(groups.contains("sandbox"), Feature::Sandbox);
    found(has_property(session, "virtio-blk-pci", "iothread-vq-mapping")?, Feature::IothreadVqMapping);
    Ok(QemuFeatures {
        version: QemuVersion { major: 0, minor: 0, micro: 0, package: String::new() },
        accelerators: BTreeSet::new(),
        machines: Vec::new(),
        devices: BTreeSet::new(),
        objects: BTreeSet::new(),
        cpu_models: BTreeSet::new(),
        netdevs: schema.netdevs,
        options,
    })
}

fn option_groups(session: &mut Session) -> Result<BTreeSet<String>, SessionError> {
    #[derive(Deserialize)]
    struct Group {
        option: String,
    }
    let listed: Vec<Group> = session.ask(&qmp::query_command_line_options { option: None })?;
    Ok(listed.into_iter().map(|group| group.option).collect())
}

/// A build without the type has no such property; that is an answer, not an error.
fn has_property(session: &mut Session, typename: &str, property: &str) -> Result<bool, SessionError> {
    let listed = session.ask::<Vec<Named>>(&qmp::device_list_properties { typename: typename.to_owned() });
    match listed {
        Ok(listed) => Ok(listed.iter().any(|entry| entry.name == property)),
        Err(SessionError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn cpu_features(session: &mut Session) -> Result<BTreeSet<String>, SessionError> {
    #[derive(Deserialize)]
    struct Reply {
        model: Model,
    }
    #[derive(Deserialize)]
    struct Model {
        props: BTreeMap<String, serde_json::Value>,
    }
    let question = qmp::query_cpu_model_expansion {
        type_: qmp::CpuModelExpansionType::full,
        model: qmp::CpuModelInfo { name: "max".to_owned(), props: None },
    };
    let Reply { model } = session.ask(&question)?;
    let on = |(name, value): (String, serde_json::Value)| (value == true).then_some(name);
    Ok(model.props.into_iter().filter_map(on).collect())
}
