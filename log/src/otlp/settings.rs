//! Whether there is a collector, and where: the variables of OpenTelemetry's specification
//! (<https://opentelemetry.io/docs/specs/otel/protocol/exporter>). One whose name has `TRACES` goes before the one without. Pure.
//!
//! | variable | read as |
//! | --- | --- |
//! | `OTEL_EXPORTER_OTLP_ENDPOINT`, `…_TRACES_ENDPOINT` | where the collector is, without user and password; `/v1/traces` is added to the first |
//! | `OTEL_TRACES_EXPORTER` | `otlp`, also without an endpoint; `none` |
//! | `OTEL_SDK_DISABLED` | `true`: nothing is sent |
//! | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf` alone |
//! | `OTEL_EXPORTER_OTLP_COMPRESSION` | `none` alone |
//! | `OTEL_EXPORTER_OTLP_TIMEOUT` | milliseconds for an attempt, none of which begins later: a batch takes twice that at most |
//! | `OTEL_EXPORTER_OTLP_CERTIFICATE` | a file with authorities, PEM; needed for `https` |
//! | `OTEL_EXPORTER_OTLP_CLIENT_KEY`, `…_CLIENT_CERTIFICATE` | refused |
//! | `OTEL_TRACES_SAMPLER`, `…_SAMPLER_ARG` | judged here, followed by the SDK, which would take a wrong one for the usual one |
//!
//! The crates below read `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, and the limits `OTEL_SPAN_*`.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

/// Where a collector is by default, for who asks for OTLP and names none.
const USUAL_ENDPOINT: &str = "http://localhost:4318";
/// What is added to the endpoint of all signals.
const PATH: &str = "/v1/traces";
const USUAL_TIMEOUT_MS: u64 = 10_000;
/// Which traces are sent. Those of a ratio have it in a variable of their own.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Why a collector that is named cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// The endpoint.
    #[error(
        "{variable} is `{value}`, which is no URL of http or https with a host; write it as `http://collector.observability:4318`"
    )]
    Endpoint {
        /// The variable.
        variable: String,
        /// What it has.
        value: String,
    },
    /// A user and a password before the host: no client sends them. The value is a secret.
    #[error(
        "{variable} has an `@`: a user and a password in the URL are not sent; write the URL without them, and `authorization=Basic …` in OTEL_EXPORTER_OTLP_HEADERS"
    )]
    Credentials {
        /// The variable.
        variable: String,
    },
    /// Something that is not supported.
    #[error("{variable} is `{value}`, which is not supported; write {instead}")]
    Unsupported {
        /// The variable.
        variable: String,
        /// What it has.
        value: String,
        /// What to write instead.
        instead: &'static str,
    },
    /// No authority for TLS.
    #[error(
        "the collector is asked by https, and nothing says whom to trust; set OTEL_EXPORTER_OTLP_CERTIFICATE to a file with its authority"
    )]
    NoAuthority,
}

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Where batches are sent.
    pub(super) endpoint: Uri,
    /// How long one attempt to send a batch may take; none begins later.
    pub(super) timeout: Duration,
    /// Whom to trust.
    pub(super) certificate: Option<PathBuf>,
}

impl Settings {
    /// The collector for the log.
    pub(super) fn collector(&self) -> String {
        let host = self.endpoint.host().unwrap_or_default();
        self.endpoint.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// What the variables say; nothing if no spans are to be sent.
pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, SettingsError> {
    // Empty is as good as missing.
    let written = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let of_traces = |what: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| written(&name).map(|value| (name, value)))
    };
    if written("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let name = "OTEL_TRACES_EXPORTER";
    let exporter = written(name);
    if exporter.as_deref() == Some("none") {
        return Ok(None);
    }
    only((name.to_owned(), exporter.clone()), "otlp", "`otlp` or `none`")?;
    let usual = exporter.map(|_| ("the usual endpoint".to_owned(), USUAL_ENDPOINT.to_owned()));
    let Some((name, value)) = of_traces("ENDPOINT").or(usual) else { return Ok(None) };
    for (what, supported, instead) in [
        ("PROTOCOL", "http/protobuf", "`http/protobuf`, and the collector's port for HTTP, usually 4318"),
        ("COMPRESSION", "none", "`none`"),
        ("CLIENT_KEY", "", "nothing: certificates of clients are not shown"),
        ("CLIENT_CERTIFICATE", "", "nothing: certificates of clients are not shown"),
    ] {
        let (name, value) = of_traces(what).unzip();
        only((name.unwrap_or_default(), value), supported, instead)?;
    }
    sampler(written("OTEL_TRACES_SAMPLER"), written("OTEL_TRACES_SAMPLER_ARG"))?;
    let settings = Settings {
        endpoint: endpoint(name, value)?,
        timeout: timeout(of_traces("TIMEOUT"))?,
        certificate: of_traces("CERTIFICATE").map(|(_, file)| file.into()),
    };
    if settings.endpoint.scheme_str() == Some("https") && settings.certificate.is_none() {
        return Err(SettingsError::NoAuthority);
    }
    Ok(Some(settings))
}

/// Refuses everything but one value.
fn only(
    (variable, value): (String, Option<String>),
    supported: &str,
    instead: &'static str,
) -> Result<(), SettingsError> {
    match value {
        Some(value) if !value.eq_ignore_ascii_case(supported) => {
            Err(SettingsError::Unsupported { variable, value, instead })
        }
        Some(_) | None => Ok(()),
    }
}

fn sampler(sampler: Option<String>, argument: Option<String>) -> Result<(), SettingsError> {
    let Some(sampler) = sampler else { return Ok(()) };
    let refused = |variable: &str, value: String, instead| {
        Err(SettingsError::Unsupported { variable: variable.to_owned(), value, instead })
    };
    if !SAMPLERS.contains(&sampler.as_str()) {
        let instead = "`parentbased_always_on`, `parentbased_traceidratio` or another one of the specification";
        return refused("OTEL_TRACES_SAMPLER", sampler, instead);
    }
    let is_part = |text: &String| text.parse::<f64>().is_ok_and(|part| (0.0..=1.0).contains(&part));
    match argument.filter(|_| sampler.ends_with("ratio")).filter(|text| !is_part(text)) {
        Some(wrong) => refused("OTEL_TRACES_SAMPLER_ARG", wrong, "a number from 0 to 1"),
        None => Ok(()),
    }
}

fn endpoint(variable: String, value: String) -> Result<Uri, SettingsError> {
    if value.contains('@') {
        return Err(SettingsError::Credentials { variable });
    }
    let is_of_traces = variable.contains("TRACES");
    let whole = if is_of_traces { value.clone() } else { format!("{}{PATH}", value.trim_end_matches('/')) };
    let is_usable = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    whole.parse().ok().filter(is_usable).ok_or(SettingsError::Endpoint { variable, value })
}

fn timeout(written: Option<(String, String)>) -> Result<Duration, SettingsError> {
    let Some((variable, value)) = written else { return Ok(Duration::from_millis(USUAL_TIMEOUT_MS)) };
    let milliseconds = value.parse().ok().filter(|milliseconds: &u64| *milliseconds > 0);
    let unsupported =
        SettingsError::Unsupported { variable, value, instead: "milliseconds, as a whole number above 0" };
    milliseconds.map(Duration::from_millis).ok_or(unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        read(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    fn endpoint_of(variables: &[(&str, &str)]) -> Option<String> {
        of(variables).unwrap().map(|settings| settings.endpoint.to_string())
    }

    #[test]
    fn without_a_collector_nothing_is_sent() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for variables in [
            [("OTEL_EXPORTER_OTLP_ENDPOINT", " "), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            [endpoint, ("OTEL_SDK_DISABLED", "TRUE")],
            [endpoint, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert_eq!(of(&variables), Ok(None), "{variables:?}");
        }
        assert_eq!(of(&[]), Ok(None));
    }

    #[test]
    fn a_collector_is_where_the_variables_say() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert_eq!(endpoint_of(&[all]).as_deref(), Some("http://collector:4318/v1/traces"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://tempo:4318/otlp/v1/traces");
        assert_eq!(endpoint_of(&[all, traces]).as_deref(), Some("http://tempo:4318/otlp/v1/traces"));
        let usual = endpoint_of(&[("OTEL_TRACES_EXPORTER", "otlp")]);
        assert_eq!(usual.as_deref(), Some("http://localhost:4318/v1/traces"));
        let secured = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/otlp/ca.crt"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ];
        let secured = of(&secured).unwrap().unwrap();
        assert_eq!(secured.collector(), "collector:4318");
        assert_eq!(
            (secured.timeout, secured.certificate),
            (Duration::from_millis(2500), Some("/etc/otlp/ca.crt".into()))
        );
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "xray"),
        ] {
            let error = of(&[endpoint, (name, value)]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name} is `{value}`")), "{error}");
        }
        let ratio = |part| of(&[endpoint, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", part)]);
        assert!(ratio("0.25").is_ok() && ratio("2").is_err() && ratio("many").is_err());
        for value in ["collector:4318", "unix:///run/otlp", "http://"] {
            let error = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", value)]).unwrap_err();
            assert!(matches!(error, SettingsError::Endpoint { .. }), "{error}");
        }
        for value in ["http://ada:s3cr3t@collector:4318", "ada:s3cr3t@collector"] {
            let error = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", value)]).unwrap_err();
            assert!(
                matches!(error, SettingsError::Credentials { .. }) && !error.to_string().contains("s3cr3t"),
                "{error}"
            );
        }
        let untrusted = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318")]);
        assert_eq!(untrusted, Err(SettingsError::NoAuthority));
    }
}
