//! Access credentials: keys and passwords that reach the guest without being in its image.

use super::report::{Report, invalid};
use super::subject::Subject;
use crate::fault::FieldPath;
use crate::v1::SSHPublicKeyAccessCredential;

/// Judges every access credential.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let list = subject.path("accessCredentials");
    for (index, credential) in subject.spec.access_credentials.iter().enumerate() {
        let at = list.index(index);
        let kinds = usize::from(credential.ssh_public_key.is_some()) + usize::from(credential.user_password.is_some());
        if kinds != 1 {
            report.push(
                invalid(at.clone(), format!("a credential is one thing, and {kinds} are written"))
                    .instead("write one of `sshPublicKey` and `userPassword`"),
            );
        }
        if let Some(key) = &credential.ssh_public_key {
            public_key(subject, key, &at.child("sshPublicKey"), report);
        }
        if let Some(password) = &credential.user_password {
            let at = at.child("userPassword");
            source(password.source.secret.is_some(), &at, report);
            if password.propagation_method.qemu_guest_agent.is_none() {
                report.push(
                    invalid(at.child("propagationMethod"), "no way into the guest is written")
                        .instead("write `qemuGuestAgent: {}`"),
                );
            }
        }
    }
}

fn source(has_secret: bool, at: &FieldPath, report: &mut Report) {
    if !has_secret {
        report
            .push(invalid(at.child("source"), "no source is written").instead("write `secret` with its `secretName`"));
    }
}

fn public_key(subject: &Subject<'_>, key: &SSHPublicKeyAccessCredential, at: &FieldPath, report: &mut Report) {
    source(key.source.secret.is_some(), at, report);
    let at = at.child("propagationMethod");
    let method = &key.propagation_method;
    let methods = [method.no_cloud.is_some(), method.config_drive.is_some(), method.qemu_guest_agent.is_some()];
    let count = methods.into_iter().filter(|set| *set).count();
    if count != 1 {
        report.push(
            invalid(at.clone(), format!("a key takes one way into the guest, and {count} are written"))
                .instead("write one of `noCloud`, `configDrive` and `qemuGuestAgent`"),
        );
    }
    let volumes = &subject.spec.volumes;
    if method.no_cloud.is_some() && !volumes.iter().any(|volume| volume.cloud_init_no_cloud.is_some()) {
        report.push(
            invalid(at.child("noCloud"), "there is no volume to carry the key")
                .instead("add a volume with `cloudInitNoCloud`")
                .field(at.to_string()),
        );
    }
    if method.config_drive.is_some() && !volumes.iter().any(|volume| volume.cloud_init_config_drive.is_some()) {
        report.push(
            invalid(at.child("configDrive"), "there is no volume to carry the key")
                .instead("add a volume with `cloudInitConfigDrive`")
                .field(at.to_string()),
        );
    }
    if method.qemu_guest_agent.as_ref().is_some_and(|agent| agent.users.is_empty()) {
        report.push(
            invalid(at.child("qemuGuestAgent").child("users"), "no user is named")
                .instead("name the users who get the key"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::testing::{accepted, refused};

    const FIRST: &str = "spec.accessCredentials[0]";

    fn key(method: Value) -> Value {
        json!({"sshPublicKey": {"source": {"secret": {"secretName": "k"}}, "propagationMethod": method}})
    }

    #[test]
    fn a_credential_has_one_source_and_one_way_in() {
        accepted(&[
            &[(FIRST, key(json!({"noCloud": {}})))],
            &[(FIRST, key(json!({"qemuGuestAgent": {"users": ["u"]}})))],
        ]);
        refused(&[
            (&[(FIRST, json!({}))], FIRST, "0 are written"),
            (&[(FIRST, key(json!({})))], "spec.accessCredentials[0].sshPublicKey.propagationMethod", "0 are written"),
            (
                &[(FIRST, key(json!({"configDrive": {}})))],
                "spec.accessCredentials[0].sshPublicKey.propagationMethod.configDrive",
                "cloudInitConfigDrive",
            ),
            (
                &[(FIRST, key(json!({"qemuGuestAgent": {"users": []}})))],
                "spec.accessCredentials[0].sshPublicKey.propagationMethod.qemuGuestAgent.users",
                "no user",
            ),
            (
                &[(FIRST, json!({"userPassword": {"source": {}, "propagationMethod": {"qemuGuestAgent": {}}}}))],
                "spec.accessCredentials[0].userPassword.source",
                "secretName",
            ),
        ]);
    }
}
