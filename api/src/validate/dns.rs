//! The guest's names and how it resolves others: host name, subdomain, DNS policy and configuration.

use super::addresses::is_ip;
use super::names::{label_problem, subdomain_problem};
use super::report::{Report, invalid, required, unsupported};
use super::subject::{Subject, text};
use crate::suggest::one_of;

const POLICIES: &[&str] = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
/// What a resolver of the C library reads, and so what Kubernetes allows.
const NAME_SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 6;
const SEARCHES_LENGTH_MAX: usize = 256;

/// Judges names and DNS.
pub(crate) fn check(subject: &Subject<'_>, report: &mut Report) {
    let host = text(&subject.spec.hostname);
    if !host.is_empty()
        && let Some(problem) = label_problem(host)
    {
        report.push(
            invalid(subject.path("hostname"), format!("the name `{}` {problem}", host.escape_debug()))
                .instead("write a DNS label, such as `web-1`, and the domain as `subdomain`"),
        );
    }
    let domain = text(&subject.spec.subdomain);
    if !domain.is_empty()
        && let Some(problem) = subdomain_problem(domain)
    {
        report.push(
            invalid(subject.path("subdomain"), format!("the name `{}` {problem}", domain.escape_debug()))
                .instead("write DNS labels in lower case joined by dots"),
        );
    }
    policy(subject, report);
    servers(subject, report);
    searches_and_options(subject, report);
}

fn policy(subject: &Subject<'_>, report: &mut Report) {
    let policy = text(&subject.spec.dns_policy);
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        report.push(
            unsupported(subject.path("dnsPolicy"), format!("there is no policy `{policy}`"))
                .instead(one_of(policy, POLICIES)),
        );
    }
    if policy != "None" {
        return;
    }
    match &subject.spec.dns_config {
        None => report.push(
            required(subject.path("dnsConfig"), "the policy `None` leaves the guest without a name server")
                .instead("write `dnsConfig` with `nameservers`, or another policy"),
        ),
        Some(config) if config.nameservers.as_deref().unwrap_or_default().is_empty() => report.push(
            required(subject.path("dnsConfig.nameservers"), "the policy `None` leaves the guest without a name server")
                .instead("write the address of one, or another policy")
                .field("nameservers"),
        ),
        Some(_) => {}
    }
}

fn servers(subject: &Subject<'_>, report: &mut Report) {
    let Some(config) = &subject.spec.dns_config else { return };
    let at = subject.path("dnsConfig.nameservers");
    let servers = config.nameservers.as_deref().unwrap_or_default();
    if servers.len() > NAME_SERVERS_MAX {
        report.push(
            invalid(at.clone(), format!("{} name servers are written", servers.len()))
                .instead(format!("write at most {NAME_SERVERS_MAX}"))
                .field("nameservers"),
        );
    }
    for (index, server) in servers.iter().enumerate() {
        if !is_ip(server) {
            report.push(
                invalid(at.index(index), format!("`{}` is not an IP address", server.escape_debug()))
                    .instead("write the address of a name server")
                    .field("nameservers"),
            );
        }
    }
}

fn searches_and_options(subject: &Subject<'_>, report: &mut Report) {
    let Some(config) = &subject.spec.dns_config else { return };
    let at = subject.path("dnsConfig.searches");
    let searches = config.searches.as_deref().unwrap_or_default();
    let length = searches.join(" ").len();
    if searches.len() > SEARCHES_MAX {
        report.push(
            invalid(at.clone(), format!("{} search domains are written", searches.len()))
                .instead(format!("write at most {SEARCHES_MAX}"))
                .field("searchDomains"),
        );
    }
    if length > SEARCHES_LENGTH_MAX {
        report.push(
            invalid(at.clone(), format!("the search domains have {length} characters together"))
                .instead(format!("write at most {SEARCHES_LENGTH_MAX}"))
                .field("searchDomains"),
        );
    }
    for (index, search) in searches.iter().enumerate() {
        if let Some(problem) = subdomain_problem(search) {
            report.push(
                invalid(at.index(index), format!("the domain `{}` {problem}", search.escape_debug()))
                    .instead("write DNS labels in lower case joined by dots")
                    .field("searchDomains"),
            );
        }
    }
    for (index, option) in config.options.as_deref().unwrap_or_default().iter().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            report.push(
                invalid(subject.path("dnsConfig.options").index(index).child("name"), "the option has no name")
                    .instead("write one, such as `ndots`")
                    .field("options"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::testing::{accepted, faults, refused};

    const CONFIG: &str = "spec.dnsConfig";

    #[test]
    fn names_a_guest_can_have() {
        accepted(&[
            &[("spec.hostname", json!("web-1")), ("spec.subdomain", json!("sub.domain"))],
            &[("spec.hostname", json!("")), ("spec.subdomain", json!(""))],
        ]);
        refused(&[
            (&[("spec.hostname", json!("a.b"))], "spec.hostname", "`subdomain`"),
            (&[("spec.hostname", json!("a".repeat(64)))], "spec.hostname", "63"),
            (&[("spec.subdomain", json!("Sub"))], "spec.subdomain", "`S`"),
        ]);
    }

    #[test]
    fn resolvers_have_limits() {
        accepted(&[&[(CONFIG, json!({"nameservers": ["10.0.0.1"], "options": [{"name": "ndots", "value": "2"}]}))]]);
        let long = format!("a.{}.c", "b".repeat(60));
        refused(&[
            (&[(CONFIG, json!({"nameservers": ["a"]}))], "spec.dnsConfig.nameservers[0]", "IP address"),
            (&[(CONFIG, json!({"nameservers": vec!["10.0.0.1"; 4]}))], "spec.dnsConfig.nameservers", "at most 3"),
            (&[(CONFIG, json!({"searches": vec![long.as_str(); 7]}))], "spec.dnsConfig.searches", "at most 6"),
            (&[(CONFIG, json!({"searches": vec![long.as_str(); 5]}))], "spec.dnsConfig.searches", "at most 256"),
            (&[(CONFIG, json!({"searches": ["-a"]}))], "spec.dnsConfig.searches[0]", "letter or digit"),
            (&[(CONFIG, json!({"options": [{"value": "2"}]}))], "spec.dnsConfig.options[0].name", "no name"),
            (&[("spec.dnsPolicy", json!("Nome"))], "spec.dnsPolicy", "did you mean `None`?"),
            (&[("spec.dnsPolicy", json!("None"))], "spec.dnsConfig", "without a name server"),
            (
                &[("spec.dnsPolicy", json!("None")), (CONFIG, json!({"searches": ["a"]}))],
                "spec.dnsConfig.nameservers",
                "without a name server",
            ),
        ]);
    }

    #[test]
    fn kubevirt_reports_resolvers_without_their_path() {
        let field = |config| faults(&[(CONFIG, config)])[0].field.clone();
        assert_eq!(field(json!({"nameservers": ["a"]})), "nameservers");
        assert_eq!(field(json!({"searches": ["-a"]})), "searchDomains");
        assert_eq!(field(json!({"options": [{"value": "2"}]})), "options");
    }
}
