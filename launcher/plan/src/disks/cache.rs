//! Caching and submission of a disk's I/O.

use garboard_machine::blockdev::{Aio, Cache};
use garboard_machine::device::WriteCache;

use super::Asked;
use super::source::Source;
use crate::disk::Medium;
use crate::draft::{invalid, text};
use crate::error::PlanError;
use crate::options::DirectIo;

/// How I/O of one disk travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachePlan {
    /// On the host.
    pub(super) host: Cache,
    /// How it is submitted.
    pub(super) aio: Aio,
    /// What the guest sees.
    pub(super) guest: WriteCache,
    /// Whether the guest sees a write cache, for the next start; `None` where the manifest contains it.
    pub(super) kept: Option<bool>,
}

impl CachePlan {
    /// The manifest's mode, else: around the page cache where that works. Where it does not, what must survive is
    /// written through, and what is dropped at the stop need not be. A guest that has seen a write cache, or none, at its
    /// first start sees the same at every other one: with one the guest itself flushes data that must be safe.
    pub(super) fn of(asked: Asked<'_>, source: &Source, read_only: bool) -> Result<Self, PlanError> {
        let works = source.facts.direct_io == DirectIo::Works;
        let field = format!("{}.cache", asked.field);
        let (host, guest) = match text(&asked.disk.cache) {
            Some("none") if !works => {
                return Err(PlanError::HostLacks {
                    field,
                    message: "the file system of the volume refuses direct I/O".to_owned(),
                    instead: "write `writethrough`, or leave it out".to_owned(),
                });
            }
            Some("none") => (Cache::Direct, WriteCache::On),
            Some("writethrough") => (Cache::Page, WriteCache::Off),
            Some("writeback") => (Cache::Page, WriteCache::On),
            Some(other) => {
                let message = format!("there is no cache mode `{other}`");
                return Err(invalid(field, message, "write none, writethrough or writeback"));
            }
            None if source.is_seed => (Cache::Page, WriteCache::On),
            // Like the base of an overlay: many machines read it, one copy in the page cache serves them all.
            None if source.is_image() && !source.has_overlay => (Cache::Page, WriteCache::On),
            None if works => (Cache::Direct, WriteCache::On),
            None if source.is_ephemeral => (Cache::Page, WriteCache::On),
            None => (Cache::Page, WriteCache::Off),
        };
        if source.is_shareable && host != Cache::Direct {
            return Err(invalid(
                format!("{}.shareable", asked.field),
                "two VMs would each have their own page cache of this disk",
                "write `cache: none`, on a volume that takes direct I/O",
            ));
        }
        let is_open = text(&asked.disk.cache).is_none();
        let guest = match asked.kept.write_cache.filter(|_| is_open) {
            _ if read_only => WriteCache::Auto,
            Some(true) => WriteCache::On,
            Some(false) => WriteCache::Off,
            None => guest,
        };
        let kept = match guest {
            WriteCache::On => Some(true),
            WriteCache::Off => Some(false),
            // A disk that cannot be written now may be again.
            WriteCache::Auto => asked.kept.write_cache,
        };
        Ok(Self { host, aio: aio(asked, source, host)?, guest, kept: kept.filter(|_| is_open) })
    }

    /// For the base of an overlay.
    pub(super) const fn shared_base() -> Self {
        Self { host: Cache::Page, aio: Aio::Threads, guest: WriteCache::Auto, kept: None }
    }

    pub(super) fn is_direct(self) -> bool {
        self.host == Cache::Direct
    }
}

fn aio(asked: Asked<'_>, source: &Source, host: Cache) -> Result<Aio, PlanError> {
    let field = || format!("{}.io", asked.field);
    match text(&asked.disk.io) {
        Some("native") if host != Cache::Direct => {
            Err(invalid(field(), "`native` needs direct I/O", "write `threads`, or add `cache: none`"))
        }
        Some("native") => Ok(Aio::Native),
        Some("threads") => Ok(Aio::Threads),
        Some(other) => Err(invalid(field(), format!("there is no I/O mode `{other}`"), "write `native` or `threads`")),
        // Allocating blocks is not asynchronous in the kernel, so a sparse file would block QEMU.
        None => {
            let is_allocated = source.facts.medium == Medium::BlockDevice || source.facts.preallocated;
            let is_native = host == Cache::Direct && is_allocated && !source.has_overlay;
            Ok(if is_native { Aio::Native } else { Aio::Threads })
        }
    }
}
