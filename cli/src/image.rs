//! `garboard image`: the cache of container disk images.

use std::time::Duration;

use garboard_shim_client::places::Places;
use garboard_storage::oci::{ImageSummary, WantedFiles};
use serde::Serialize;

use crate::args::{ImageArgs, ImageCommand, ListOutput};
use crate::exit;
use crate::images::Images;
use crate::output::{Named, out, outln};
use crate::table;

/// `garboard image list | pull | prune`.
pub(crate) fn run(args: &ImageArgs) -> anyhow::Result<u8> {
    let images = Images::new(&Places::of_caller(None)?, &[]);
    match &args.command {
        ImageCommand::List { output } => list(&images, *output)?,
        ImageCommand::Pull { reference } => {
            for path in images.fetch(reference, &WantedFiles::Disk(None), Some("Always"))? {
                outln!("{}", path.display())?;
            }
        }
        ImageCommand::Prune => {
            // Zero: every image that no running machine holds open may be removed; QEMU keeps its open files.
            let pruned = images.cache()?.prune(Duration::ZERO)?;
            outln!("{} images removed, {} files removed, {} bytes freed", pruned.images, pruned.files, pruned.bytes)?;
        }
    }
    Ok(exit::OK)
}

/// An image of the cache.
#[derive(Serialize)]
#[serde(transparent)]
struct Row(ImageSummary);

impl Named for Row {
    fn name(&self) -> String {
        self.0.reference.clone()
    }
}

fn list(images: &Images, output: ListOutput) -> anyhow::Result<()> {
    let rows: Vec<Row> = images.cache()?.list()?.into_iter().map(Row).collect();
    output.show(&rows, |wide| {
        let mut lines: Vec<Vec<String>> = vec![["REFERENCE", "SIZE", "MANIFEST"].map(str::to_owned).to_vec()];
        lines.extend(rows.iter().map(|Row(image)| {
            // Enough of a digest to distinguish two: `sha256:` and twelve digits.
            let manifest = image.manifest.to_string();
            let shown = if wide { manifest } else { manifest.chars().take(19).collect() };
            vec![image.reference.clone(), table::bytes(image.disk_bytes), shown]
        }));
        out!("{}", table::render(&lines, &[]))
    })
}
