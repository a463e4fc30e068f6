//! Which program this is, for `--version`.

use std::sync::LazyLock;

use garboard_kubectl::VERSION;

/// The version, and what it was built for.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| format!("{VERSION}{BUILT_FOR}"));

const BUILT_FOR: &str = concat!(
    "\nmanifests: kubevirt.io/v1, v1alpha3, v1alpha2, of machines v1alpha1\nKubernetes: 1.33 or newer (`garboard cluster \
     status`: what is installed there)\nhost: ",
    "Linux x86_64, QEMU 7.2 or newer (`garboard doctor`)",
);
