//! Whether a guest's agent has the commands that its instance needs (KubeVirt's `isGuestAgentSupported`). Pure.

use garboard_api::VirtualMachineInstance;
use garboard_protocol::control::GuestStatus;
use garboard_protocol::guest::{BASIC_COMMANDS, KEYS_COMMAND, PASSWORD_COMMAND};

/// The commands that are missing, of those that the instance needs. Public keys are set by one command alone; KubeVirt also takes
/// agents that have programs executed instead.
pub(super) fn missing<'a>(guest: &'a GuestStatus, vmi: &VirtualMachineInstance) -> Vec<&'a str> {
    let credentials = &vmi.spec.access_credentials;
    let sets_keys = credentials.iter().any(|each| {
        each.ssh_public_key.as_ref().is_some_and(|keys| keys.propagation_method.qemu_guest_agent.is_some())
    });
    let sets_passwords = credentials.iter().any(|each| {
        each.user_password.as_ref().is_some_and(|passwords| passwords.propagation_method.qemu_guest_agent.is_some())
    });
    let is_needed = |command: &str| {
        BASIC_COMMANDS.contains(&command)
            || (sets_keys && command == KEYS_COMMAND)
            || (sets_passwords && command == PASSWORD_COMMAND)
    };
    guest.missing_commands.iter().map(String::as_str).filter(|command| is_needed(command)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_agent_needs_follows_from_the_credentials() {
        let keys = json!({"sshPublicKey": {"source": {"secret": {"secretName": "s"}},
            "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}});
        let keys_at_start = json!({"sshPublicKey": {"source": {"secret": {"secretName": "s"}},
            "propagationMethod": {"noCloud": {}}}});
        let passwords = json!({"userPassword": {"source": {"secret": {"secretName": "s"}},
            "propagationMethod": {"qemuGuestAgent": {}}}});
        let table = [
            (json!([]), vec![KEYS_COMMAND, PASSWORD_COMMAND], vec![]),
            (json!([keys_at_start]), vec![KEYS_COMMAND], vec![]),
            (json!([keys]), vec![KEYS_COMMAND, PASSWORD_COMMAND], vec![KEYS_COMMAND]),
            (json!([keys, passwords]), vec![KEYS_COMMAND, PASSWORD_COMMAND], vec![KEYS_COMMAND, PASSWORD_COMMAND]),
            (json!([passwords]), vec!["guest-get-time", KEYS_COMMAND], vec!["guest-get-time"]),
            (json!([]), vec!["guest-of-another-version"], vec![]),
            (json!([keys, passwords]), vec![], vec![]),
        ];
        for (credentials, absent, expected) in table {
            let vmi = serde_json::from_value(json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm"},
                "spec": {"domain": {"devices": {}}, "accessCredentials": credentials},
            }));
            let absent = absent.iter().map(|command: &&str| (*command).to_owned()).collect();
            let guest = GuestStatus { missing_commands: absent, ..GuestStatus::default() };
            assert_eq!(missing(&guest, &vmi.unwrap()), expected, "{credentials}");
        }
    }
}
