//! Which program this is, for `--version`.

/// The version, and what it was built for.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nmanifests: kubevirt.io/v1, kubevirt.io/v1alpha3\nKubernetes: 1.33 or newer (`garboard cluster status`: what is \
     installed there)\nhost: ",
    "Linux x86_64, QEMU 7.2 or newer (`garboard doctor`)",
);
