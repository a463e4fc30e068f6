//! Memory encryption and what it excludes.

use super::firmware::secure_boot;
use super::report::{Report, invalid, unsupported};
use super::subject::{Subject, text};
use crate::arch::Arch;
use crate::cluster::Gate;
use crate::v1::LaunchSecurity;

/// Judges launch security.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let Some(security) = &subject.spec.domain.launch_security else { return };
    match subject.arch() {
        Some(Arch::Amd64) => on_amd64(subject, security, report),
        Some(Arch::Arm64 | Arch::S390x) => elsewhere(subject, security, report),
        None => {}
    }
}

fn on_amd64(subject: &Subject<'_>, security: &LaunchSecurity, report: &mut Report) {
    let mut refuse = |message: String, instead: &str| {
        report.push(
            invalid(subject.path("domain.launchSecurity"), message)
                .instead(instead)
                .field(subject.path("launchSecurity").to_string()),
        );
    };
    let types = [("SEV", security.sev.is_some()), ("SNP", security.snp.is_some()), ("TDX", security.tdx.is_some())];
    let written: Vec<&str> = types.into_iter().filter_map(|(name, set)| set.then_some(name)).collect();
    let [name] = written.as_slice() else {
        refuse(
            format!("{} types of launch security are written", written.len()),
            "write one of `sev`, `snp` and `tdx`",
        );
        return;
    };
    if let Some(gate) = missing_gate(subject, security) {
        refuse(format!("{name} needs the feature gate {gate}"), "switch the gate on, or remove it");
        return;
    }
    excluded(subject, security, name, &mut refuse);
}

fn elsewhere(subject: &Subject<'_>, security: &LaunchSecurity, report: &mut Report) {
    if security.sev.is_some() || security.snp.is_some() || security.tdx.is_some() {
        report.push(
            unsupported(subject.path("domain.launchSecurity"), "SEV, SNP and TDX are features of amd64")
                .instead("remove it, or write `architecture: amd64`")
                .field(subject.path("launchSecurity").to_string()),
        );
    }
}

fn missing_gate(subject: &Subject<'_>, security: &LaunchSecurity) -> Option<Gate> {
    let gate = if security.tdx.is_some() { Gate::Tdx } else { Gate::Sev };
    (!subject.config.has(gate)).then_some(gate)
}

fn excluded(subject: &Subject<'_>, security: &LaunchSecurity, name: &str, refuse: &mut impl FnMut(String, &str)) {
    let domain = &subject.spec.domain;
    let amd = security.sev.is_some() || security.snp.is_some();
    let efi = domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|loader| loader.efi.as_ref());
    match efi {
        None => refuse(format!("{name} needs EFI"), "write `firmware: {bootloader: {efi: {secureBoot: false}}}`"),
        Some(efi) => {
            if amd && secure_boot(domain.firmware.as_ref()) {
                refuse(format!("{name} excludes Secure Boot"), "write `efi: {secureBoot: false}`");
            }
            if security.sev.is_none() && efi.persistent == Some(true) {
                refuse(format!("{name} excludes kept EFI variables"), "remove `persistent`");
            }
        }
    }
    let smm = domain.features.as_ref().and_then(|features| features.smm.as_ref());
    if security.tdx.is_some() && smm.is_some_and(|smm| smm.enabled != Some(false)) {
        refuse(format!("{name} excludes system management mode"), "write `features: {smm: {enabled: false}}`");
    }
    let attested = security.sev.as_ref().is_some_and(|sev| sev.attestation.is_some());
    if attested && text(&subject.spec.start_strategy) != "Paused" {
        refuse("attestation looks at a guest before it runs".to_owned(), "write `startStrategy: Paused`");
    }
    for interface in domain.devices.interfaces.iter().filter(|interface| interface.boot_order.is_some()) {
        refuse(
            format!("{name} excludes booting from the network, as `{}` would", interface.name),
            "remove `bootOrder` from the interface",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cluster::{ClusterConfig, Gate};
    use crate::validate::testing::{accepted, faults, faults_in, refused};

    const SECURITY: &str = "spec.domain.launchSecurity";
    const FIRMWARE: &str = "spec.domain.firmware";

    fn efi(settings: Value) -> (&'static str, Value) {
        (FIRMWARE, json!({"bootloader": {"efi": settings}}))
    }

    #[test]
    fn encryption_needs_efi_without_secure_boot() {
        let plain = efi(json!({"secureBoot": false}));
        accepted(&[&[(SECURITY, json!({"sev": {}})), plain.clone()]]);
        refused(&[
            (&[(SECURITY, json!({}))], SECURITY, "0 types"),
            (&[(SECURITY, json!({"sev": {}, "snp": {}}))], SECURITY, "2 types"),
            (&[(SECURITY, json!({"sev": {}}))], SECURITY, "needs EFI"),
            (
                &[(SECURITY, json!({"sev": {}})), efi(json!({})), ("spec.domain.features", json!({"smm": {}}))],
                SECURITY,
                "excludes Secure Boot",
            ),
            (
                &[(SECURITY, json!({"snp": {}})), efi(json!({"secureBoot": false, "persistent": true}))],
                SECURITY,
                "kept EFI variables",
            ),
            (&[(SECURITY, json!({"sev": {"attestation": {}}})), plain.clone()], SECURITY, "startStrategy: Paused"),
            (
                &[(SECURITY, json!({"tdx": {}})), plain.clone(), ("spec.domain.features", json!({"smm": {}}))],
                SECURITY,
                "system management mode",
            ),
            (
                &[(SECURITY, json!({"sev": {}})), plain, ("spec.domain.devices.interfaces[0].bootOrder", json!(1))],
                SECURITY,
                "booting from the network",
            ),
        ]);
    }

    #[test]
    fn kubevirt_leaves_a_step_out() {
        assert_eq!(faults(&[(SECURITY, json!({}))])[0].field, "spec.launchSecurity");
        let changes = [(SECURITY, json!({"tdx": {}})), efi(json!({"secureBoot": false}))];
        let faults = faults_in(&changes, &ClusterConfig::offline().without(Gate::Tdx));
        assert!(faults[0].message.contains("WorkloadEncryptionTDX"));
    }

    #[test]
    fn other_architectures_have_none_of_it() {
        let changes = [(SECURITY, json!({"sev": {}})), ("spec.architecture", json!("s390x"))];
        assert_eq!(faults(&changes)[0].field, "spec.launchSecurity");
    }
}
