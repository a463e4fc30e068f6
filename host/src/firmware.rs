//! Installed UEFI builds (OVMF): a code image and the variables a machine starts from.
//!
//! Distributions describe theirs in JSON files; QEMU's `docs/interop/firmware.json` is the format, and defines which of
//! several files of one name counts. Where a distribution ships none, the places Debian, Fedora and Arch use are tried.
//!
//! A pair is taken if it is meant for q35 on x86-64, is flash in raw format and keeps variables: that is how the
//! planner uses it.

use std::collections::BTreeMap;
use std::fs;

use garboard_machine::facts::{UefiKind, UefiPair};
use serde::Deserialize;

use crate::root::HostRoot;

/// Directories of descriptions, a later one overriding an earlier one's file of the same name.
const DESCRIPTIONS: [&str; 2] = ["/usr/share/qemu/firmware", "/etc/qemu/firmware"];

/// Where builds without a description lie: code, variables, kind.
const KNOWN: [(&str, &str, UefiKind); 8] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd", UefiKind::Plain),
    ("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd", UefiKind::SecureBoot),
    ("/usr/share/OVMF/OVMF_CODE_4M.ms.fd", "/usr/share/OVMF/OVMF_VARS_4M.ms.fd", UefiKind::SecureBootEnrolled),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd", UefiKind::Plain),
    ("/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd", UefiKind::SecureBoot),
    (
        "/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd",
        "/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd",
        UefiKind::SecureBootEnrolled,
    ),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd", UefiKind::Plain),
    ("/usr/share/edk2/x64/OVMF_CODE.secboot.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd", UefiKind::SecureBoot),
];

/// The UEFI builds of a host, best first within each kind: in the order of their descriptions' file names.
#[must_use]
pub fn find(root: &HostRoot) -> Vec<UefiPair> {
    let mut pairs: Vec<UefiPair> = Vec::new();
    for pair in described(root).into_iter().chain(known(root)) {
        if !pairs.iter().any(|seen| seen.code == pair.code && seen.vars_template == pair.vars_template) {
            pairs.push(pair);
        }
    }
    pairs.sort_by_key(|pair| pair.kind);
    pairs
}

fn described(root: &HostRoot) -> Vec<UefiPair> {
    let mut files: BTreeMap<String, &str> = BTreeMap::new();
    for directory in DESCRIPTIONS {
        for name in root.names_in(directory).into_iter().filter(|name| name.ends_with(".json")) {
            files.insert(name, directory);
        }
    }
    let mut pairs = Vec::new();
    for (name, directory) in files {
        let path = format!("{directory}/{name}");
        // An empty file hides the one it overrides; that is part of the format.
        let Some(text) = root.read_trimmed(&path).filter(|text| !text.is_empty()) else { continue };
        match serde_json::from_str::<Description>(&text) {
            Ok(description) => pairs.extend(description.pair(root)),
            Err(error) => tracing::debug!(path, %error, "firmware description could not be parsed"),
        }
    }
    pairs
}

fn known(root: &HostRoot) -> Vec<UefiPair> {
    KNOWN.iter().filter_map(|(code, vars, kind)| pair(root, code, vars, *kind)).collect()
}

fn pair(root: &HostRoot, code: &str, vars: &str, kind: UefiKind) -> Option<UefiPair> {
    let size = |path: &str| fs::metadata(root.path(path)).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    Some(UefiPair {
        code: code.to_owned(),
        vars_template: vars.to_owned(),
        kind,
        code_bytes: size(code)?,
        vars_bytes: size(vars)?,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Description {
    interface_types: Vec<String>,
    mapping: Mapping,
    targets: Vec<Target>,
    features: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Mapping {
    device: String,
    #[serde(default)]
    mode: Option<String>,
    executable: Option<Image>,
    nvram_template: Option<Image>,
}

#[derive(Deserialize)]
struct Image {
    filename: String,
    format: String,
}

#[derive(Deserialize)]
struct Target {
    architecture: String,
    machines: Vec<String>,
}

impl Description {
    fn pair(self, root: &HostRoot) -> Option<UefiPair> {
        let has = |feature: &str| self.features.iter().any(|known| known == feature);
        let kind = match (has("secure-boot"), has("enrolled-keys")) {
            (false, _) => UefiKind::Plain,
            (true, false) => UefiKind::SecureBoot,
            (true, true) => UefiKind::SecureBootEnrolled,
        };
        let usable = self.interface_types.iter().any(|kind| kind == "uefi")
            && self.mapping.device == "flash"
            && self.mapping.mode.as_deref().is_none_or(|mode| mode == "split")
            && self.targets.iter().any(Target::is_q35);
        let (code, vars) = (self.mapping.executable?, self.mapping.nvram_template?);
        if !usable || code.format != "raw" || vars.format != "raw" {
            return None;
        }
        pair(root, &code.filename, &vars.filename, kind)
    }
}

impl Target {
    fn is_q35(&self) -> bool {
        let q35 = |pattern: &String| pattern.starts_with("pc-q35") || pattern == "q35" || pattern == "*";
        self.architecture == "x86_64" && self.machines.iter().any(q35)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::host_of;

    fn description(code: &str, format: &str, features: &str) -> String {
        format!(
            r#"{{"description": "x", "interface-types": ["uefi"], "mapping": {{"device": "flash",
              "executable": {{"filename": "{code}", "format": "{format}"}},
              "nvram-template": {{"filename": "/fw/vars.fd", "format": "{format}"}}}},
              "targets": [{{"architecture": "x86_64", "machines": ["pc-q35-*"]}}],
              "features": [{features}], "tags": []}}"#
        )
    }

    #[test]
    fn kinds_come_from_the_features_and_order_from_the_file_names() {
        let enrolled = description("/fw/enrolled.fd", "raw", r#""secure-boot", "enrolled-keys""#);
        let secure = description("/fw/secure.fd", "raw", r#""secure-boot""#);
        let second = description("/fw/second.fd", "raw", "");
        let first = description("/fw/first.fd", "raw", r#""acpi-s3""#);
        let (_directory, root) = host_of(&[
            ("/usr/share/qemu/firmware/40.json", &enrolled),
            ("/usr/share/qemu/firmware/50.json", &secure),
            ("/usr/share/qemu/firmware/70.json", &second),
            ("/etc/qemu/firmware/60.json", &first),
            ("/fw/enrolled.fd", "1234"),
            ("/fw/secure.fd", "123"),
            ("/fw/first.fd", "12"),
            ("/fw/second.fd", "1"),
            ("/fw/vars.fd", "12345"),
        ]);
        let found = find(&root);
        let names: Vec<_> = found.iter().map(|pair| (pair.kind, pair.code.as_str(), pair.code_bytes)).collect();
        assert_eq!(
            names,
            [
                (UefiKind::Plain, "/fw/first.fd", 2),
                (UefiKind::Plain, "/fw/second.fd", 1),
                (UefiKind::SecureBoot, "/fw/secure.fd", 3),
                (UefiKind::SecureBootEnrolled, "/fw/enrolled.fd", 4),
            ]
        );
        assert_eq!(found[0].vars_bytes, 5);
    }

    #[test]
    fn what_is_overridden_missing_compressed_or_broken_is_left_out() {
        let (_directory, root) = host_of(&[
            ("/usr/share/qemu/firmware/10.json", &description("/fw/hidden.fd", "raw", "")),
            ("/etc/qemu/firmware/10.json", ""),
            ("/usr/share/qemu/firmware/20.json", &description("/fw/qcow2.fd", "qcow2", "")),
            ("/usr/share/qemu/firmware/30.json", &description("/fw/not-there.fd", "raw", "")),
            ("/usr/share/qemu/firmware/40.json", "{"),
            ("/fw/hidden.fd", "x"),
            ("/fw/qcow2.fd", "x"),
            ("/fw/vars.fd", "x"),
        ]);
        assert_eq!(find(&root), []);
    }

    #[test]
    fn undescribed_builds_are_found_in_the_known_places() {
        let (_directory, root) =
            host_of(&[("/usr/share/OVMF/OVMF_CODE_4M.fd", "code"), ("/usr/share/OVMF/OVMF_VARS_4M.fd", "vars")]);
        let found = find(&root);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].code_bytes), (UefiKind::Plain, 4));
    }

    #[test]
    fn debians_ovmf_gives_all_three_kinds() {
        let root = HostRoot::real();
        if !root.exists("/usr/share/OVMF/OVMF_CODE_4M.ms.fd") {
            eprintln!("skipped: Debian's package ovmf is not installed");
            return;
        }
        let kinds: Vec<_> = find(&root).iter().map(|pair| pair.kind).collect();
        assert_eq!(kinds, [UefiKind::Plain, UefiKind::SecureBoot, UefiKind::SecureBootEnrolled]);
    }
}
