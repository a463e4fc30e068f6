//! Fuzz targets: untrusted bytes into Garboard's parsers. What must hold is in each target; what is always wrong is a
//! panic, an overflow, or an input that takes longer than [`run::INPUT_LIMIT`].
//!
//! Three ways to run the same functions:
//!
//! | command (in `fuzz/`) | needs | what it does |
//! | --- | --- | --- |
//! | `cargo test` | stable Rust | every seed, and some thousand mutations of them |
//! | `cargo run --release --bin run -- --seconds 60 [TARGET…]` | stable Rust | mutates seeds for a while, without coverage |
//! | `./coverage TARGET SECONDS` | stable Rust, a C++ compiler | libFuzzer with coverage, corpus in `corpus/TARGET` |
//!
//! `cargo fuzz run TARGET --features libfuzzer` works too where nightly Rust and cargo-fuzz are installed; it adds the
//! address sanitizer, which finds nothing in code that forbids `unsafe`.
//!
//! A new target is a function in a module here, a row in [`TARGETS`], a directory in `seeds/`, four lines in
//! `fuzz_targets/`, and a `[[bin]]` in `Cargo.toml`.

pub mod dhcp;
pub mod manifests;
pub mod mutate;
pub mod qcow2;
pub mod qmp;
pub mod run;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, also that of its directory in `seeds/`.
    pub name: &'static str,
    /// Feeds it one input. Panics when something that must hold does not.
    pub run: fn(&[u8]),
    /// Tokens of its language, to be put into inputs.
    pub tokens: &'static [&'static str],
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "qmp_lines", run: qmp::qmp_lines, tokens: qmp::TOKENS },
    Target { name: "agent_replies", run: qmp::agent_replies, tokens: qmp::TOKENS },
    Target { name: "broker_input", run: qmp::broker_input, tokens: qmp::TOKENS },
    Target { name: "redaction", run: qmp::redaction, tokens: qmp::TOKENS },
    Target { name: "schema", run: qmp::schema, tokens: qmp::TOKENS },
    Target { name: "dhcp4", run: dhcp::dhcp4, tokens: dhcp::TOKENS },
    Target { name: "dhcp6", run: dhcp::dhcp6, tokens: dhcp::TOKENS },
    Target { name: "router_solicitations", run: dhcp::router_solicitations, tokens: dhcp::TOKENS },
    Target { name: "manifests", run: manifests::manifests, tokens: manifests::TOKENS },
    Target { name: "qcow2_header", run: qcow2::qcow2_header, tokens: qcow2::TOKENS },
];
