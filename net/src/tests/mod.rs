//! Tests of whole paths: the same steps on the fake and on the real kernel, and real guests' clients on real
//! taps. Everything real happens in throw-away namespaces, also the "host"; what needs root reports it when it
//! is skipped.

mod contract;
mod end_to_end;
mod lab;
mod steps;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::error::NetError;
use crate::kernel::{Kernel, Paths};
use crate::netns::NetNs;
use crate::observed::Observed;
use crate::seam::{Namespace, Outline};
use crate::testing::Faulty;

/// A namespace with its real kernel; the namespace outlives the test.
fn real() -> Kernel<'static> {
    Kernel::enter(Box::leak(Box::new(NetNs::create().unwrap())), Paths::default()).unwrap()
}

/// What is done once the released taps and ports have no holder any more. Another test of this program may have started a
/// process meanwhile; until its child has executed something, the child has them, too.
async fn once_free<T>(mut attempt: impl AsyncFnMut() -> Result<T, NetError>) -> T {
    let is_held = |error: &NetError| {
        matches!(error, NetError::TapHeld { .. })
            || matches!(error, NetError::Socket { source, .. } if source.kind() == ErrorKind::AddrInUse)
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt().await {
            Err(error) if is_held(error.cause()) && Instant::now() < deadline => {}
            done => return done.unwrap(),
        }
    }
}

/// Both sides with one shared budget of changes.
fn faulty<N>(one: N, other: N, budget: usize) -> (Faulty<N>, Faulty<N>, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(budget));
    (Faulty::new(one, left.clone()), Faulty::new(other, left.clone()), left)
}

/// Everything a test compares before and after: what the kernel makes by itself is left out.
async fn snapshot<N: Namespace>(namespace: &N, tables: &[&str]) -> (Observed, Vec<Option<Outline>>) {
    let mut seen = namespace.observe().await.unwrap();
    for link in &mut seen.links {
        link.index = 0;
        // The kernel reports an alias taken away as an empty one.
        link.alias = link.alias.take().filter(|alias| !alias.is_empty());
    }
    let by_kernel = |net: &ipnet::IpNet| match net {
        ipnet::IpNet::V6(net) => net.addr().is_unicast_link_local() || net.addr().is_multicast(),
        ipnet::IpNet::V4(_) => false,
    };
    seen.addresses.retain(|address| !by_kernel(&address.address) && address.link != "lo");
    seen.routes.retain(|route| !by_kernel(&route.to));
    seen.links.sort();
    seen.addresses.sort();
    seen.routes.sort();
    let mut outlines = Vec::new();
    for table in tables {
        outlines.push(namespace.outline(table).await.unwrap());
    }
    (seen, outlines)
}
