//! The files of the page, which this program has in itself: cli/plugin/page.

/// A file.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    name: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

/// Files by their names beneath cli/plugin/page.
macro_rules! assets {
    ($($name:literal,)*) => {
        &[$(Asset { name: $name, bytes: include_bytes!(concat!("../../../page/", $name)) },)*]
    };
}

/// All of them. A browser is given no others.
const ASSETS: &[Asset] = assets![
    "actions.js",
    "api.js",
    "console.js",
    "detail.js",
    "dom.js",
    "icon.svg",
    "index.html",
    "machines.js",
    "main.js",
    "screen.js",
    "session.js",
    "signin.js",
    "style.css",
    "table.js",
    "vendor/novnc/core/base64.js",
    "vendor/novnc/core/crypto/aes.js",
    "vendor/novnc/core/crypto/bigint.js",
    "vendor/novnc/core/crypto/crypto.js",
    "vendor/novnc/core/crypto/des.js",
    "vendor/novnc/core/crypto/dh.js",
    "vendor/novnc/core/crypto/md5.js",
    "vendor/novnc/core/crypto/rsa.js",
    "vendor/novnc/core/decoders/copyrect.js",
    "vendor/novnc/core/decoders/h264.js",
    "vendor/novnc/core/decoders/hextile.js",
    "vendor/novnc/core/decoders/jpeg.js",
    "vendor/novnc/core/decoders/raw.js",
    "vendor/novnc/core/decoders/rre.js",
    "vendor/novnc/core/decoders/tight.js",
    "vendor/novnc/core/decoders/tightpng.js",
    "vendor/novnc/core/decoders/zlib.js",
    "vendor/novnc/core/decoders/zrle.js",
    "vendor/novnc/core/deflator.js",
    "vendor/novnc/core/display.js",
    "vendor/novnc/core/encodings.js",
    "vendor/novnc/core/inflator.js",
    "vendor/novnc/core/input/domkeytable.js",
    "vendor/novnc/core/input/fixedkeys.js",
    "vendor/novnc/core/input/gesturehandler.js",
    "vendor/novnc/core/input/keyboard.js",
    "vendor/novnc/core/input/keysym.js",
    "vendor/novnc/core/input/keysymdef.js",
    "vendor/novnc/core/input/util.js",
    "vendor/novnc/core/input/vkeys.js",
    "vendor/novnc/core/input/xtscancodes.js",
    "vendor/novnc/core/ra2.js",
    "vendor/novnc/core/rfb.js",
    "vendor/novnc/core/util/browser.js",
    "vendor/novnc/core/util/cursor.js",
    "vendor/novnc/core/util/element.js",
    "vendor/novnc/core/util/events.js",
    "vendor/novnc/core/util/eventtarget.js",
    "vendor/novnc/core/util/int.js",
    "vendor/novnc/core/util/logging.js",
    "vendor/novnc/core/util/strings.js",
    "vendor/novnc/core/websock.js",
    "vendor/novnc/vendor/pako/lib/utils/common.js",
    "vendor/novnc/vendor/pako/lib/zlib/adler32.js",
    "vendor/novnc/vendor/pako/lib/zlib/constants.js",
    "vendor/novnc/vendor/pako/lib/zlib/crc32.js",
    "vendor/novnc/vendor/pako/lib/zlib/deflate.js",
    "vendor/novnc/vendor/pako/lib/zlib/gzheader.js",
    "vendor/novnc/vendor/pako/lib/zlib/inffast.js",
    "vendor/novnc/vendor/pako/lib/zlib/inflate.js",
    "vendor/novnc/vendor/pako/lib/zlib/inftrees.js",
    "vendor/novnc/vendor/pako/lib/zlib/messages.js",
    "vendor/novnc/vendor/pako/lib/zlib/trees.js",
    "vendor/novnc/vendor/pako/lib/zlib/zstream.js",
    "vendor/xterm-addon-fit/lib/addon-fit.mjs",
    "vendor/xterm/css/xterm.css",
    "vendor/xterm/lib/xterm.mjs",
    "watch.js",
];

/// A file by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

impl Asset {
    /// As a browser has to be given it: `nosniff` makes it believe this alone.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const SERVED: [&str; 5] = ["html", "css", "js", "mjs", "svg"];

    fn collect(directory: &Path, root: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, names);
            } else if path.extension().is_some_and(|ending| SERVED.iter().any(|each| ending == *each)) {
                names.insert(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_in_the_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut names = BTreeSet::new();
        collect(&root, &root, &mut names);
        let listed: BTreeSet<String> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
        assert_eq!(listed, names);
        assert!(find("index.html").is_some() && find("../Cargo.toml").is_none());
    }
}
