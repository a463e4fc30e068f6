//! Which machine a command line means, judged and defaulted.

use garboard_api::RunStrategy;
use garboard_api::VirtualMachine;
use garboard_api::cluster::ClusterConfig;
use garboard_api::defaults::{Identity, default_vmi, vmi_of};
use garboard_api::instancetype::{Sizing, sized};
use garboard_api::metadata::{DEFAULT_NAMESPACE, annotation};
use garboard_api::v1::VirtualMachineInstance;
use garboard_api::validate::{Object, review_sized, validate_vmi};
use garboard_plan::{KeptError, KeptMachine, StoredMachine};
use garboard_shim_client::places::MachineId;
use uuid::Uuid;

use crate::args::ManifestArgs;
use crate::exit::{BAD_INPUT, exit_error};
use crate::manifest::{self, Document};
use crate::output::note;
use crate::sizes;

/// Namespace of the identifiers that are made from names: an instance made twice from the same manifest is the
/// same machine to its guest.
const IDENTITY_NAMESPACE: Uuid = Uuid::from_u128(0x6761_7262_6f61_7264_8000_0000_0000_0001);

/// One machine out of the given files.
pub(crate) struct Subject {
    /// The instance, defaulted.
    pub(crate) vmi: VirtualMachineInstance,
    /// When the machine is to be started again after its run.
    pub(crate) strategy: RunStrategy,
    /// Whether its machine is kept for the next `run`: a VirtualMachine's is, an instance is one run.
    pub(crate) is_kept: bool,
    /// The stored machine that a cluster wrote into the manifest, for a machine that nothing is kept of here.
    pub(crate) annotated: Option<StoredMachine>,
    /// Every document that was given.
    pub(crate) documents: Vec<Document>,
    /// The machine's ID.
    pub(crate) id: MachineId,
}

/// Reads the files and picks the machine; every mistake in its manifest is reported at once.
pub(crate) fn find(args: &ManifestArgs) -> anyhow::Result<Subject> {
    let documents = manifest::load(&args.files)?;
    let document = pick(&documents, args)?;
    let config = ClusterConfig::default();
    let mut looked = sizes::look(document, &documents);
    let mut absent = std::mem::take(&mut looked.sizing.missing);
    absent.extend(looked.fault.take());
    let admission = review_sized(&looked.manifest, &config, &looked.sizing);
    for warning in &admission.warnings {
        note!("garboard: warning: {}: {warning}", document.origin);
    }
    let faults = [admission.faults, absent].concat();
    let Some(object) = admission.object.filter(|_| faults.is_empty()) else {
        let faults = faults.iter().map(|fault| format!("{}: {fault}", document.origin));
        return Err(exit_error(BAD_INPUT, faults.collect::<Vec<_>>().join("\n")));
    };
    let mut kept = None;
    let (mut vmi, strategy, is_kept) = match object {
        // An instance is one run.
        Object::VirtualMachineInstance(vmi) => (*vmi, RunStrategy::Once, false),
        Object::Preset(_) => {
            let text = format!("{}: a preset is of a cluster; write what it gives into the machine", document.origin);
            return Err(exit_error(BAD_INPUT, text));
        }
        Object::ReplicaSet(_) => {
            let text =
                format!("{}: a set is of a cluster; write its template as a VirtualMachineInstance", document.origin);
            return Err(exit_error(BAD_INPUT, text));
        }
        Object::Pool(_) => {
            let text = format!("{}: a pool is of a cluster; write its template as a VirtualMachine", document.origin);
            return Err(exit_error(BAD_INPUT, text));
        }
        Object::KubeVirt(_) | Object::Instancetype(_) | Object::Preference(_) => {
            let text = format!("{}: this is no machine; name one", document.origin);
            return Err(exit_error(BAD_INPUT, text));
        }
        Object::VirtualMachine(vm) => {
            kept = annotated(&vm)?;
            let whole = with_sizes(&vm, &looked.sizing, &config)?;
            (vmi_of(&whole), strategy_of(vm.spec.run_strategy.as_deref(), vm.spec.running)?, true)
        }
    };
    let id = identify(&mut vmi)?;
    Ok(Subject { vmi, strategy, is_kept, annotated: kept, documents, id })
}

/// The machine with its instancetype and its preference in its template.
fn with_sizes(vm: &VirtualMachine, sizing: &Sizing, config: &ClusterConfig) -> anyhow::Result<VirtualMachine> {
    if sizing.is_empty() {
        return Ok(vm.clone());
    }
    sized(vm, sizing, config).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        exit_error(BAD_INPUT, lines.join("\n"))
    })
}

/// The stored machine in a manifest that was saved from a cluster; that of another machine is left alone.
fn annotated(vm: &VirtualMachine) -> anyhow::Result<Option<StoredMachine>> {
    let key = annotation::STORED_MACHINE;
    let Some(text) = vm.metadata.annotations.as_ref().and_then(|all| all.get(key)) else { return Ok(None) };
    let bad_input = |error: KeptError| {
        exit_error(BAD_INPUT, format!("metadata.annotations[{key}]: {error}; for a new machine, remove the annotation"))
    };
    let kept = KeptMachine::read(text).map_err(bad_input)?;
    let namespace = vm.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    if !kept.is_of(namespace, vm.metadata.name.as_deref().unwrap_or_default()) {
        note!(
            "garboard: metadata.annotations[{key}] is of another machine, {}/{}: left out",
            kept.namespace,
            kept.name
        );
        return Ok(None);
    }
    kept.judge().map(Some).map_err(bad_input)
}

/// `running` is the older way to write `Always` or `Halted`; a VM has exactly one of the two.
fn strategy_of(name: Option<&str>, running: Option<bool>) -> anyhow::Result<RunStrategy> {
    let name = match (name, running) {
        (Some(name), _) => name,
        (None, Some(true)) => "Always",
        (None, Some(false) | None) => "Halted",
    };
    RunStrategy::parse(name).ok_or_else(|| {
        let text = format!("spec.runStrategy: {name} needs a cluster; write Always, RerunOnFailure, Once or Manual");
        exit_error(BAD_INPUT, text)
    })
}

fn pick<'a>(documents: &'a [Document], args: &ManifestArgs) -> anyhow::Result<&'a Document> {
    let name = args.name.as_deref();
    let machines: Vec<&Document> = documents.iter().filter(|document| document.is_machine()).collect();
    let wanted: Vec<&Document> =
        machines.iter().copied().filter(|document| name.is_none_or(|name| document.name() == name)).collect();
    let files: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let files = files.join(", ");
    let names = |documents: &[&Document]| documents.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let text = match (wanted.as_slice(), name) {
        ([one], _) => return Ok(one),
        ([], Some(name)) if !machines.is_empty() => {
            format!("{files}: no machine called {name}; choose one of {} with --name", names(&machines))
        }
        ([], _) => format!(
            "{files}: no VirtualMachine and no VirtualMachineInstance in it; add one of apiVersion kubevirt.io/v1"
        ),
        (several, _) => format!("{files}: several machines ({}); choose one with --name", names(several)),
    };
    Err(exit_error(BAD_INPUT, text))
}

/// Gives the instance what an API server would: namespace and UID; then the rest of its defaults, and judges what
/// only an instance can break.
fn identify(vmi: &mut VirtualMachineInstance) -> anyhow::Result<MachineId> {
    let namespace = vmi.metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned()).clone();
    let name = vmi.metadata.name.clone().unwrap_or_default();
    let full = format!("{namespace}/{name}");
    let uid = Uuid::new_v5(&IDENTITY_NAMESPACE, full.as_bytes());
    vmi.metadata.uid.get_or_insert_with(|| uid.to_string());
    let firmware_uuid = Uuid::new_v5(&uid, b"firmware");
    // Admission is pure and gives an instance without a UUID the nil one; here it gets one of its own.
    let firmware = vmi.spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().is_none_or(|written| written.is_empty() || written == Uuid::nil().to_string()) {
        firmware.uuid = Some(firmware_uuid.to_string());
    }
    default_vmi(vmi, &ClusterConfig::default(), &Identity { firmware_uuid });
    let faults = validate_vmi(vmi, &ClusterConfig::default());
    if !faults.is_empty() {
        let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(exit_error(BAD_INPUT, lines.join("\n")));
    }
    full.parse().map_err(|problem: String| exit_error(BAD_INPUT, format!("metadata.name: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_is_the_older_word_for_a_strategy() {
        let of = |name, running| strategy_of(name, running).unwrap();
        assert_eq!(of(None, Some(true)), RunStrategy::Always);
        assert_eq!(of(None, Some(false)), RunStrategy::Halted);
        assert_eq!(of(Some("RerunOnFailure"), None), RunStrategy::RerunOnFailure);
        assert!(strategy_of(Some("WaitAsReceiver"), None).is_err());
    }

    #[test]
    fn a_manifest_that_was_saved_from_a_cluster_brings_its_machine_and_a_copy_does_not() {
        let machine = serde_json::json!({"version": 2, "machineType": "pc-q35-7.2", "cpu": "max",
            "pci": {"ports": [], "devices": {}}, "macs": {"default": "02:00:00:00:00:01"}, "diskSerials": {}});
        let saved = |name: &str, machine: &serde_json::Value| {
            let kept = serde_json::json!({"namespace": "default", "name": "vm", "machine": machine}).to_string();
            let mut vm = VirtualMachine::default();
            vm.metadata.name = Some(name.to_owned());
            vm.metadata.annotations = Some([(annotation::STORED_MACHINE.to_owned(), kept)].into());
            annotated(&vm)
        };
        assert_eq!(saved("vm", &machine).unwrap().unwrap().macs["default"], "02:00:00:00:00:01");
        assert_eq!(saved("copy", &machine).unwrap(), None);
        let error = saved("vm", &serde_json::json!({"version": 2})).unwrap_err().to_string();
        assert!(error.starts_with("metadata.annotations[garboard.dev/stored-machine]: "), "{error}");
    }
}
