//! `garboard image`: the cache of container disk images.

use std::time::Duration;

use garboard_storage::oci::Need;

use crate::args::{ImageArgs, ImageCommand, Output};
use crate::exit;
use crate::images::Images;
use crate::places::Places;

/// `garboard image list | pull | prune`.
pub(crate) fn run(args: &ImageArgs) -> anyhow::Result<u8> {
    let images = Images::new(&Places::of_caller(None)?, &[]);
    match &args.command {
        ImageCommand::List { output } => list(&images, *output)?,
        ImageCommand::Pull { reference } => {
            for path in images.fetch(reference, &Need::Disk(None), Some("Always"))? {
                println!("{}", path.display());
            }
        }
        ImageCommand::Prune => {
            // Zero: whatever no running machine holds open may go; QEMU keeps what it has open.
            let pruned = images.cache()?.prune(Duration::ZERO)?;
            println!(
                "{} images forgotten, {} files removed, {} bytes given back",
                pruned.images, pruned.files, pruned.bytes
            );
        }
    }
    Ok(exit::OK)
}

fn list(images: &Images, output: Output) -> anyhow::Result<()> {
    let list = images.cache()?.list()?;
    if output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    for image in list {
        println!("{}  {}  {} bytes", image.reference, image.manifest, image.disk_bytes);
    }
    Ok(())
}
