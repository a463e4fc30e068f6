//! Cloud-init data, inline or from Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::LocalObjectReference;

use super::report::{Report, invalid};
use super::subject::text;
use crate::fault::FieldPath;
use crate::v1::Volume;

/// The most inline data of one kind, in bytes: objects are copied to every watcher, so large data belongs in a Secret.
const INLINE_MAX: usize = 2048;

/// The three places where one kind of data may stand.
struct Places<'a> {
    /// The name of the kind, as it begins its fields.
    kind: &'static str,
    secret: bool,
    plain: &'a str,
    base64: &'a str,
}

impl Places<'_> {
    fn count(&self) -> usize {
        [self.secret, !self.plain.is_empty(), !self.base64.is_empty()].into_iter().filter(|set| *set).count()
    }
}

/// Judges the cloud-init source of a volume, if it has one.
pub(crate) fn check(volume: &Volume, at: &FieldPath, report: &mut Report) {
    if let Some(source) = &volume.cloud_init_no_cloud {
        let user = places("userData", &source.secret_ref, &source.user_data, &source.user_data_base64);
        let network =
            places("networkData", &source.network_data_secret_ref, &source.network_data, &source.network_data_base64);
        judge(&at.child("cloudInitNoCloud"), &user, &network, report);
    } else if let Some(source) = &volume.cloud_init_config_drive {
        let user = places("userData", &source.secret_ref, &source.user_data, &source.user_data_base64);
        let network =
            places("networkData", &source.network_data_secret_ref, &source.network_data, &source.network_data_base64);
        judge(&at.child("cloudInitConfigDrive"), &user, &network, report);
    }
}

fn places<'a>(
    kind: &'static str,
    secret: &Option<LocalObjectReference>,
    plain: &'a Option<String>,
    base64: &'a Option<String>,
) -> Places<'a> {
    let secret = secret.as_ref().is_some_and(|secret| !secret.name.is_empty());
    Places { kind, secret, plain: text(plain), base64: text(base64) }
}

fn judge(at: &FieldPath, user: &Places<'_>, network: &Places<'_>, report: &mut Report) {
    for places in [user, network] {
        let kind = places.kind;
        let reference = if kind == "userData" { "secretRef" } else { "networkDataSecretRef" };
        if places.count() > 1 {
            report.push(
                invalid(at.clone(), format!("`{kind}` comes from {} places", places.count()))
                    .instead(format!("keep one of `{kind}`, `{kind}Base64` and `{reference}`")),
            );
        }
        let decoded = decoded_length(&places.base64.replace(['\r', '\n'], ""));
        if decoded.is_none() {
            report.push(
                invalid(at.child(&format!("{kind}Base64")), "this is not base64")
                    .instead(format!("encode the data with `base64 -w0`, or write it plainly as `{kind}`")),
            );
        }
        let length = places.plain.len().max(decoded.unwrap_or(0));
        if length > INLINE_MAX {
            report.push(
                invalid(at.clone(), format!("`{kind}` has {length} bytes, and {INLINE_MAX} fit inline"))
                    .instead(format!("put it into a Secret and name that as `{reference}`")),
            );
        }
    }
    if user.count() + network.count() == 0 {
        report.push(
            invalid(at.clone(), "there is neither user data nor network data")
                .instead("write `userData`, or name a Secret as `secretRef`"),
        );
    }
}

fn decoded_length(encoded: &str) -> Option<usize> {
    STANDARD.decode(encoded).ok().map(|bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, refused};

    const SEED: &str = "spec.volumes[1].cloudInitNoCloud";

    #[test]
    fn data_comes_from_one_place() {
        accepted(&[
            &[(SEED, json!({"userDataBase64": "IyEvYmluL3NoCg=="}))],
            &[(SEED, json!({"userDataBase64": "IyEv\nYmluL3NoCg==\n"}))],
            &[(SEED, json!({"secretRef": {"name": "s"}}))],
            &[(SEED, json!({"userData": "x".repeat(2048)}))],
            &[(SEED, json!({"networkData": "version: 2\n"}))],
        ]);
        refused(&[
            (&[(SEED, json!({}))], SEED, "neither user data nor network data"),
            (&[(SEED, json!({"userData": "", "networkData": ""}))], SEED, "neither"),
            (&[(SEED, json!({"userData": "a", "userDataBase64": "YQ=="}))], SEED, "2 places"),
            (&[(SEED, json!({"userData": "a", "secretRef": {"name": "s"}}))], SEED, "2 places"),
            (&[(SEED, json!({"userData": "x".repeat(2049)}))], SEED, "secretRef"),
            (&[(SEED, json!({"userData": "a", "networkData": "x".repeat(2049)}))], SEED, "networkDataSecretRef"),
            (
                &[(SEED, json!({"userData": "a", "networkDataBase64": "!"}))],
                "spec.volumes[1].cloudInitNoCloud.networkDataBase64",
                "not base64",
            ),
        ]);
    }

    #[test]
    fn a_configuration_drive_has_the_same_rules() {
        let volume = json!({"name": "seed", "cloudInitConfigDrive": {}});
        refused(&[(&[("spec.volumes[1]", volume)], "spec.volumes[1].cloudInitConfigDrive", "neither")]);
    }
}
