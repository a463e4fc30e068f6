//! A layer on its way into the cache.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

use super::super::cache::{Cache, CacheError};
use super::super::digest::Hasher;
use super::super::manifest::Part;

/// A layer while it is downloaded: grows, hashed on the way, and survives us.
pub(super) struct PartFile<'a> {
    cache: &'a Cache,
    path: PathBuf,
    file: tokio::fs::File,
    pub(super) hasher: Hasher,
    pub(super) bytes: u64,
    layer: &'a Part,
}

impl<'a> PartFile<'a> {
    /// Opens what an earlier run left, and hashes it.
    pub(super) async fn open(cache: &'a Cache, layer: &'a Part) -> Result<Self, CacheError> {
        let path = cache.part(&layer.digest);
        let failed = |source| cache.error("open", &path, source);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let most = layer.bytes;
        let mut hasher = layer.digest.hasher();
        let hashing = tokio::task::spawn_blocking(move || {
            if file.metadata()?.len() > most {
                file.set_len(0)?;
            }
            let mut bytes = 0;
            let mut piece = vec![0; 1 << 16];
            loop {
                match (&file).read(&mut piece)? {
                    0 => return io::Result::Ok((file, hasher, bytes)),
                    read => {
                        hasher.update(piece.get(..read).unwrap_or_default());
                        bytes += read as u64;
                    }
                }
            }
        });
        let hashed = hashing.await.map_err(io::Error::other).and_then(|hashed| hashed);
        let (file, hasher, bytes) = hashed.map_err(|source| cache.error("read", &path, source))?;
        // The offset is behind what was read: writing goes on there.
        Ok(Self { cache, path, file: tokio::fs::File::from_std(file), hasher, bytes, layer })
    }

    pub(super) async fn append(&mut self, piece: &[u8]) -> Result<(), CacheError> {
        self.file.write_all(piece).await.map_err(|source| self.cache.error("write", &self.path, source))?;
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
        Ok(())
    }

    pub(super) async fn restart(&mut self) -> Result<(), CacheError> {
        use tokio::io::AsyncSeekExt;
        self.flush().await?;
        let emptied = async {
            self.file.set_len(0).await?;
            self.file.seek(io::SeekFrom::Start(0)).await.map(drop)
        };
        emptied.await.map_err(|source| self.cache.error("empty", &self.path, source))?;
        (self.bytes, self.hasher) = (0, self.layer.digest.hasher());
        Ok(())
    }

    /// Waits for what was written: tokio's file writes behind our back.
    pub(super) async fn flush(&mut self) -> Result<(), CacheError> {
        self.file.flush().await.map_err(|source| self.cache.error("write", &self.path, source))
    }

    pub(super) async fn publish(self, place: &Path) -> Result<(), CacheError> {
        tokio::fs::rename(&self.path, place).await.map_err(|source| self.cache.error("finish", place, source))
    }

    pub(super) async fn remove(&self) {
        let _ = tokio::fs::remove_file(&self.path).await;
    }
}
