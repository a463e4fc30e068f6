//! Against the reference implementation of a registry on loopback, through a proxy that cuts, and against registries with wrong answers.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::{OciImageManifest, OciManifest};
use oci_client::secrets::RegistryAuth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::testing::{TarEntry, gzip, layout_of, tar_of, when_free, zstd};
use super::*;

/// `user` / `word`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2y$04$3P.H4lFZdpLaAKqraD.h6.kpz/9BpB2JULWN6sjcOJ8oN/UrAoAAS\n";

/// A registry process on loopback; ends with the value.
struct TestRegistry {
    child: Child,
    address: String,
    _room: tempfile::TempDir,
}

impl TestRegistry {
    /// `None`, with a message, where it cannot be built.
    fn start(auth: &str) -> Option<Self> {
        let built = Self::built()?;
        // Another process may get its port before it has it.
        Some((0..10).find_map(|_| Self::listening(&built, auth)).expect("a registry that listens"))
    }

    fn built() -> Option<String> {
        let script = "./tests/build-registry";
        match Command::new(script).output() {
            Ok(out) if out.status.success() => Some(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
            Ok(out) => {
                eprintln!("skipped: no registry: {}", String::from_utf8_lossy(&out.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: {script}: {error}");
                None
            }
        }
    }

    /// `None` if it ends before it listens.
    fn listening(built: &str, auth: &str) -> Option<Self> {
        let room = tempfile::tempdir().unwrap();
        std::fs::write(room.path().join("htpasswd"), HTPASSWD).unwrap();
        let address = free_address();
        let auth = auth.replace("ROOM", room.path().to_str().unwrap());
        let config = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n{auth}",
            room.path().join("storage").display()
        );
        std::fs::write(room.path().join("config.yml"), config).unwrap();
        let mut child = Command::new(built)
            .args(["serve"])
            .arg(room.path().join("config.yml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            if log.read_line(&mut line).unwrap() == 0 {
                child.wait().unwrap();
                return None;
            }
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Some(Self { child, address, _room: room })
    }

    fn open() -> Option<Self> {
        Self::start("")
    }

    async fn push(&self, name: &str, layers: &[Vec<u8>]) {
        push(&self.address, name, layers, &RegistryAuth::Anonymous).await;
    }
}

impl Drop for TestRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn pusher(address: &str) -> oci_client::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let protocol = ClientProtocol::HttpsExcept(vec![address.to_owned()]);
    oci_client::Client::try_from(ClientConfig { protocol, ..ClientConfig::default() }).unwrap()
}

async fn push(address: &str, name: &str, layers: &[Vec<u8>], auth: &RegistryAuth) -> OciImageManifest {
    let reference: Reference = format!("{address}/{name}").parse().unwrap();
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers: Vec<_> = layers.iter().map(|layer| ImageLayer::new(layer.clone(), kind.to_owned(), None)).collect();
    let config = Config::oci_v1(br#"{"architecture":"amd64","os":"linux"}"#.to_vec(), None);
    let manifest = OciImageManifest::build(&layers, &config, None);
    pusher(address).push(&reference, &layers, config, auth, Some(manifest.clone())).await.unwrap();
    manifest
}

/// A cache, and all progress that was reported.
struct Room {
    room: tempfile::TempDir,
    cache: Cache,
    reported: Arc<Mutex<Vec<Progress>>>,
    credentials: Credentials,
}

impl Room {
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        let cache = Cache::open(&room.path().join("images")).unwrap();
        Self { room, cache, reported: Arc::default(), credentials: Credentials::none() }
    }

    fn request(&self, policy: PullPolicy) -> Request<'_> {
        let reported = Arc::clone(&self.reported);
        Request {
            policy,
            architecture: "amd64",
            credentials: &self.credentials,
            plain_http: &[],
            limits: ImageLimits::default(),
            retry: Retry { attempts: 3, first_pause: Duration::from_millis(1) },
            progress: Arc::new(move |progress| reported.lock().unwrap().push(progress)),
        }
    }

    async fn fetch(&self, source: &str, need: &WantedFiles, policy: PullPolicy) -> Result<Fetched, FetchError> {
        fetch(&self.cache, &ImageSource::parse(source).unwrap(), need, &self.request(policy)).await
    }

    async fn disk(&self, source: &str, policy: PullPolicy) -> Result<Vec<u8>, FetchError> {
        let fetched = self.fetch(source, &WantedFiles::Disk(None), policy).await?;
        Ok(std::fs::read(&fetched.paths[0]).unwrap())
    }

    /// How often downloading was reported since the last call.
    fn downloads(&self) -> usize {
        let reported = std::mem::take(&mut *self.reported.lock().unwrap());
        reported.iter().filter(|progress| matches!(progress, Progress::Downloading { .. })).count()
    }

    /// How much was reported since the last call, but waiting: see [`when_free`].
    fn work_reports(&self) -> usize {
        let reported = std::mem::take(&mut *self.reported.lock().unwrap());
        reported.iter().filter(|progress| **progress != Progress::Waiting).count()
    }

    /// Files anywhere below, but locks.
    fn left(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.cache.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn noise(length: usize) -> Vec<u8> {
    // Incompressible enough: a linear congruence.
    let mut state = 1_u64;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn disk_layer(content: &[u8]) -> Vec<u8> {
    gzip(&tar_of(&[TarEntry::of_kind("disk/", b'5'), TarEntry::file("disk/a.img", content)]))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn an_image_is_pulled_once_and_policies_are_kept() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(600_000);
        registry.push("team/disk:1", &[disk_layer(&content)]).await;
        let image = format!("{}/team/disk:1", registry.address);
        let room = Room::new();
        assert!(matches!(room.disk(&image, PullPolicy::Never).await, Err(FetchError::NotCached { .. })));
        assert!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap() == content);
        assert!(room.downloads() > 0);
        assert!(room.left("blobs/sha256").is_empty(), "the packed layer is gone");
        // Asked again, nothing comes twice.
        assert!(room.disk(&image, PullPolicy::Always).await.unwrap() == content);
        assert_eq!(room.downloads(), 0);
        // A new image under the same name is seen by Always alone.
        let newer = noise(400_000);
        registry.push("team/disk:1", &[disk_layer(&newer)]).await;
        assert!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap() == content);
        assert!(room.disk(&image, PullPolicy::Always).await.unwrap() == newer);
        assert!(room.disk(&image, PullPolicy::Never).await.unwrap() == newer);
        let listed = room.cache.list().unwrap();
        assert_eq!((listed.len(), listed[0].reference.as_str()), (1, image.as_str()));
        // A digest pins; the registry's absence does not matter any more.
        let pinned = format!("{}/team/disk@{}", registry.address, listed[0].manifest);
        assert!(room.disk(&pinned, PullPolicy::IfNotPresent).await.unwrap() == newer);
        drop(registry);
        assert!(room.disk(&pinned, PullPolicy::IfNotPresent).await.unwrap() == newer);
        let gone = room.disk(&image, PullPolicy::Always).await.unwrap_err();
        assert!(matches!(gone, FetchError::Pull(PullError::Unreachable { .. })), "{gone:?}");
    });
}

#[test]
fn kernels_come_from_any_path_and_layer() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let bottom = gzip(&tar_of(&[TarEntry::file("boot/vmlinuz", b"kernel"), TarEntry::of_kind("vmlinuz", b'2')]));
        let top = zstd(&tar_of(&[TarEntry::file("boot/initrd", b"initrd")]));
        registry.push("boot:1", &[bottom, top]).await;
        let image = format!("{}/boot:1", registry.address);
        let room = Room::new();
        let at = |path: &str| BeneathPath::parse(path).unwrap();
        let need = WantedFiles::Files(vec![at("/boot/vmlinuz"), at("/boot/initrd")]);
        let fetched = room.fetch(&image, &need, PullPolicy::IfNotPresent).await.unwrap();
        let read = |place: usize| std::fs::read(&fetched.paths[place]).unwrap();
        assert_eq!((read(0), read(1)), (b"kernel".to_vec(), b"initrd".to_vec()));
        let absent = room.fetch(&image, &WantedFiles::Files(vec![at("boot/none")]), PullPolicy::IfNotPresent).await;
        assert!(matches!(absent, Err(FetchError::NoSuchFile { .. })), "{absent:?}");
        let link = room.fetch(&image, &WantedFiles::Files(vec![at("vmlinuz")]), PullPolicy::IfNotPresent).await;
        assert!(matches!(link, Err(FetchError::Unusable { .. })), "{link:?}");
        let no_disk = room.fetch(&image, &WantedFiles::Disk(None), PullPolicy::IfNotPresent).await;
        assert!(matches!(no_disk, Err(FetchError::Volume(VolumeError::NoDisk))), "{no_disk:?}");
    });
}

#[test]
fn what_is_missing_or_forbidden_has_its_own_error() {
    let auth = "auth: {htpasswd: {realm: test, path: ROOM/htpasswd}}\n";
    let (Some(open), Some(closed)) = (TestRegistry::open(), TestRegistry::start(auth)) else { return };
    runtime().block_on(async {
        let mut room = Room::new();
        let missing = room.disk(&format!("{}/none:1", open.address), PullPolicy::IfNotPresent).await.unwrap_err();
        assert!(matches!(missing, FetchError::Pull(PullError::NotFound { .. })), "{missing:?}");

        let content = noise(100_000);
        let login = RegistryAuth::Basic("user".into(), "word".into());
        push(&closed.address, "secret:1", &[disk_layer(&content)], &login).await;
        let image = format!("{}/secret:1", closed.address);
        let anonymous = room.disk(&image, PullPolicy::IfNotPresent).await.unwrap_err();
        assert!(matches!(anonymous, FetchError::Pull(PullError::Unauthorized { .. })), "{anonymous:?}");
        let config = |password: &str| {
            format!(r#"{{"auths": {{"{}": {{"username": "user", "password": "{password}"}}}}}}"#, closed.address)
        };
        room.credentials = Credentials::parse(config("wrong").as_bytes()).unwrap();
        let wrong = room.disk(&image, PullPolicy::IfNotPresent).await.unwrap_err();
        assert!(matches!(wrong, FetchError::Pull(PullError::Unauthorized { .. })), "{wrong:?}");
        assert!(!format!("{wrong:?}").contains("wrong"), "the password is in the error");
        room.credentials = Credentials::parse(config("word").as_bytes()).unwrap();
        assert!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap() == content);
    });
}

#[test]
fn the_image_for_this_machine_is_taken_from_an_index() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let mut entries = Vec::new();
        for (architecture, content) in [("arm64", b"arm"), ("amd64", b"amd")] {
            let name = format!("multi:{architecture}");
            registry.push(&name, &[disk_layer(content)]).await;
            let reference: Reference = format!("{}/{name}", registry.address).parse().unwrap();
            let (bytes, digest) = pusher(&registry.address)
                .pull_manifest_raw(
                    &reference,
                    &RegistryAuth::Anonymous,
                    &["application/vnd.oci.image.manifest.v1+json"],
                )
                .await
                .unwrap();
            entries.push(serde_json::json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": digest,
                "size": bytes.len(),
                "platform": { "os": "linux", "architecture": architecture },
            }));
        }
        let index = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": entries,
        });
        let reference: Reference = format!("{}/multi:1", registry.address).parse().unwrap();
        let index = OciManifest::ImageIndex(serde_json::from_value(index).unwrap());
        pusher(&registry.address).push_manifest(&reference, &index).await.unwrap();

        let room = Room::new();
        let image = reference.to_string();
        assert_eq!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap(), b"amd");
        let other = Request { architecture: "riscv64", ..room.request(PullPolicy::IfNotPresent) };
        let source = ImageSource::parse(&image).unwrap();
        let refused = fetch(&room.cache, &source, &WantedFiles::Disk(None), &other).await.unwrap_err();
        assert!(matches!(refused, FetchError::Pull(PullError::Manifest(_))), "{refused:?}");
    });
}

/// A proxy that ends connections after some bytes of answers, as long as it is set to.
struct Cutter {
    address: String,
    cutting: Arc<AtomicBool>,
    ranges: Arc<Mutex<Vec<u64>>>,
    forwarded: Arc<AtomicU64>,
}

impl Cutter {
    async fn before(registry: &str, after_bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cutter = Self {
            address: listener.local_addr().unwrap().to_string(),
            cutting: Arc::new(AtomicBool::new(true)),
            ranges: Arc::default(),
            forwarded: Arc::default(),
        };
        let (cutting, ranges, forwarded) =
            (Arc::clone(&cutter.cutting), Arc::clone(&cutter.ranges), Arc::clone(&cutter.forwarded));
        let registry = registry.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&registry).await.unwrap();
                let (cutting, ranges, forwarded) = (Arc::clone(&cutting), Arc::clone(&ranges), Arc::clone(&forwarded));
                tokio::spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    let asking = tokio::spawn(async move {
                        let mut piece = vec![0; 1 << 16];
                        while let Ok(read @ 1..) = from_client.read(&mut piece).await {
                            let text = String::from_utf8_lossy(&piece[..read]).to_lowercase();
                            if let Some(range) = text.split("range: bytes=").nth(1) {
                                let start: String = range.chars().take_while(char::is_ascii_digit).collect();
                                ranges.lock().unwrap().push(start.parse().unwrap());
                            }
                            if to_server.write_all(&piece[..read]).await.is_err() {
                                return;
                            }
                        }
                    });
                    let mut piece = vec![0; 1 << 14];
                    let mut sent = 0;
                    while let Ok(read @ 1..) = from_server.read(&mut piece).await {
                        if to_client.write_all(&piece[..read]).await.is_err() {
                            break;
                        }
                        sent += read as u64;
                        forwarded.fetch_add(read as u64, Ordering::Relaxed);
                        if sent > after_bytes && cutting.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    asking.abort();
                });
            }
        });
        cutter
    }
}

#[test]
fn a_download_goes_on_where_it_was_cut() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(1 << 20);
        let layer = disk_layer(&content);
        registry.push("big:1", std::slice::from_ref(&layer)).await;
        let cutter = Cutter::before(&registry.address, 200 << 10).await;
        let image = format!("{}/big:1", cutter.address);
        let room = Room::new();
        assert!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap() == content);
        let ranges = cutter.ranges.lock().unwrap().clone();
        assert!(ranges.len() >= 4 && ranges.is_sorted() && ranges.iter().skip(1).all(|start| *start > 0), "{ranges:?}");
        let forwarded = cutter.forwarded.load(Ordering::Relaxed);
        assert!(forwarded < layer.len() as u64 * 3 / 2, "{forwarded} bytes came for a layer of {}", layer.len());
    });
}

#[test]
fn a_later_run_goes_on_where_an_earlier_one_gave_up() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(1 << 20);
        registry.push("big:1", &[disk_layer(&content)]).await;
        // Enough for manifests, and for some of the layer.
        let cutter = Cutter::before(&registry.address, 200 << 10).await;
        let image = format!("{}/big:1", cutter.address);
        let room = Room::new();
        let impatient =
            Request { retry: Retry { attempts: 0, ..Retry::default() }, ..room.request(PullPolicy::IfNotPresent) };
        let source = ImageSource::parse(&image).unwrap();
        let cut = fetch(&room.cache, &source, &WantedFiles::Disk(None), &impatient).await.unwrap_err();
        let FetchError::Pull(PullError::Cut { have_bytes, .. }) = cut else { panic!("{cut:?}") };
        assert!(have_bytes > 0);
        assert_eq!(room.left("blobs/sha256").len(), 1, "what came is kept");
        cutter.cutting.store(false, Ordering::Relaxed);
        cutter.ranges.lock().unwrap().clear();
        assert!(room.disk(&image, PullPolicy::IfNotPresent).await.unwrap() == content);
        assert_eq!(*cutter.ranges.lock().unwrap(), [have_bytes]);
    });
}

#[test]
fn a_spoiled_half_of_an_earlier_run_is_removed() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(200_000);
        let layer = disk_layer(&content);
        registry.push("big:1", std::slice::from_ref(&layer)).await;
        let room = Room::new();
        for spoiled in [vec![7; layer.len() / 2], vec![7; layer.len()], vec![7; layer.len() + 5]] {
            std::fs::write(room.cache.part(&Digest::of(&layer)), spoiled).unwrap();
            let image = format!("{}/big:1", registry.address);
            assert!(room.disk(&image, PullPolicy::Always).await.unwrap() == content);
            when_free(|| room.cache.prune(Duration::ZERO));
        }
    });
}

#[test]
fn a_dropped_fetch_leaves_nothing_half_and_its_download_is_used() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(1 << 20);
        registry.push("big:1", &[disk_layer(&content)]).await;
        let image = format!("{}/big:1", registry.address);
        let room = Room::new();
        // Dropped at the first sign of each stage.
        for stage in 0..3 {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            let progress: OnProgress = Arc::new(move |progress| {
                let reached = match progress {
                    Progress::Resolving { .. } | Progress::Waiting => 0,
                    Progress::Downloading { .. } => 1,
                    Progress::Unpacking { .. } => 2,
                };
                if reached == stage {
                    let _ = sender.send(());
                }
            });
            let request = Request { progress, ..room.request(PullPolicy::Always) };
            let source = ImageSource::parse(&image).unwrap();
            tokio::select! {
                biased;
                _ = receiver.recv() => {}
                fetched = fetch(&room.cache, &source, &WantedFiles::Disk(None), &request) => { fetched.unwrap(); }
            }
        }
        assert!(room.disk(&image, PullPolicy::Always).await.unwrap() == content);
        // What works for a fetch that was dropped ends soon after.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !room.left("unfinished").is_empty() {
            assert!(std::time::Instant::now() < deadline, "{:?}", room.left("unfinished"));
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn two_at_once_download_once() {
    let Some(registry) = TestRegistry::open() else { return };
    runtime().block_on(async {
        let content = noise(500_000);
        registry.push("big:1", &[disk_layer(&content)]).await;
        let image = format!("{}/big:1", registry.address);
        let room = Room::new();
        let (one, two) = tokio::join!(room.disk(&image, PullPolicy::Always), room.disk(&image, PullPolicy::Always));
        assert!(one.unwrap() == content && two.unwrap() == content);
        let reported = std::mem::take(&mut *room.reported.lock().unwrap());
        let unpacked = reported.iter().filter(|progress| matches!(progress, Progress::Unpacking { .. })).count();
        assert_eq!(unpacked, 1);
    });
}

/// A registry that answers from a table of paths, true or not.
struct Liar {
    address: String,
    answers: Arc<Mutex<BTreeMap<String, (u16, Vec<u8>)>>>,
}

impl Liar {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let liar = Self { address: listener.local_addr().unwrap().to_string(), answers: Arc::default() };
        let answers = Arc::clone(&liar.answers);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") && client.read_exact(&mut byte).await.is_ok() {
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    let known = answers.lock().unwrap().get(&path).cloned();
                    let (status, body) = known.unwrap_or((404, b"<html>nothing here".to_vec()));
                    let start =
                        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                    let _ = client.write_all(start.as_bytes()).await;
                    let _ = client.write_all(&body).await;
                });
            }
        });
        liar.answer("/v2/", 200, b"{}");
        liar
    }

    fn answer(&self, path: &str, status: u16, body: &[u8]) {
        self.answers.lock().unwrap().insert(path.to_owned(), (status, body.to_vec()));
    }

    /// An image whose manifest lists `layer`; returns where the layer is asked for, and the manifest's digest.
    fn image(&self, layer: &[u8]) -> (String, Digest) {
        let promised = Digest::of(layer);
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": Digest::of(b"").to_string(), "size": 0 },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": promised.to_string(),
                "size": layer.len(),
            }],
        })
        .to_string();
        self.answer("/v2/disk/manifests/1", 200, manifest.as_bytes());
        (format!("/v2/disk/blobs/{promised}"), Digest::of(manifest.as_bytes()))
    }
}

#[test]
fn a_wrong_digest_of_a_registry_is_an_error_and_nothing_is_kept() {
    runtime().block_on(async {
        let liar = Liar::new().await;
        let honest = disk_layer(&noise(50_000));
        let mut other = honest.clone();
        *other.last_mut().unwrap() ^= 1;
        let (layer, manifest) = liar.image(&honest);
        let image = format!("{}/disk:1", liar.address);
        let room = Room::new();

        liar.answer(&layer, 200, &other);
        let refused = room.disk(&image, PullPolicy::Always).await.unwrap_err();
        assert!(matches!(refused, FetchError::Pull(PullError::Digest { .. })), "{refused:?}");

        liar.answer(&layer, 200, &[&honest[..], b"and more"].concat());
        let refused = room.disk(&image, PullPolicy::Always).await.unwrap_err();
        assert!(matches!(refused, FetchError::Pull(PullError::TooLong { .. })), "{refused:?}");

        // Always a little less than announced, and never more.
        liar.answer(&layer, 200, &honest[..1000]);
        let refused = room.disk(&image, PullPolicy::Always).await.unwrap_err();
        assert!(matches!(refused, FetchError::Pull(PullError::Cut { .. })), "{refused:?}");
        when_free(|| room.cache.prune(Duration::ZERO));

        let other_manifest = Digest::of(b"something else");
        liar.answer(&format!("/v2/disk/manifests/{other_manifest}"), 200, b"{\"layers\": []}");
        let pinned = format!("{}/disk@{other_manifest}", liar.address);
        let refused = room.disk(&pinned, PullPolicy::Always).await.unwrap_err();
        assert!(matches!(refused, FetchError::Pull(PullError::Digest { .. })), "{refused:?}");

        for folder in ["files/sha256", "blobs/sha256", "images", "names", "unfinished"] {
            assert!(room.left(folder).is_empty(), "{folder}: {:?}", room.left(folder));
        }
        liar.answer(&layer, 200, &honest);
        assert!(room.disk(&image, PullPolicy::Always).await.is_ok());
        assert_eq!(room.cache.list().unwrap()[0].manifest, manifest.to_string());
    });
}

#[test]
fn garbage_from_a_registry_is_refused_with_one_message() {
    runtime().block_on(async {
        let liar = Liar::new().await;
        let room = Room::new();
        let image = format!("{}/disk:1", liar.address);
        let cases: [(u16, &[u8], &str); 6] = [
            (200, b"<html>a login page</html>", "cannot be read"),
            (200, b"{}", "old or unknown"),
            (200, &[0xff; 100], "cannot be read"),
            (500, b"\x1b[2J broken", "could not be parsed"),
            (404, b"no", "has no image"),
            (429, b"slow down", "limits requests"),
        ];
        for (status, body, message) in cases {
            liar.answer("/v2/disk/manifests/1", status, body);
            let error = room.disk(&image, PullPolicy::Always).await.unwrap_err();
            let chain = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
            assert!(error.to_string().contains(message), "{status}: {chain}");
            assert!(!chain.contains('\u{1b}'), "{chain:?}");
        }
    });
}

#[test]
fn layouts_and_the_operators_own_files_need_no_registry() {
    runtime().block_on(async {
        let room = Room::new();
        let layout = room.room.path().join("layout");
        let content = noise(300_000);
        layout_of(&layout, "demo:1", &[disk_layer(&content)]);
        let source = format!("oci:{}:demo:1", layout.display());
        assert!(
            room.disk(&source, PullPolicy::Never).await.unwrap() == content,
            "a layout is local whatever the policy"
        );
        assert_eq!(room.work_reports(), 1);
        // The second time nothing is unpacked.
        assert!(room.disk(&source, PullPolicy::IfNotPresent).await.unwrap() == content);
        assert_eq!(room.work_reports(), 0);
        assert!(room.disk(&format!("oci:{}:other", layout.display()), PullPolicy::Never).await.is_err());

        let unpacked = room.room.path().join("unpacked");
        std::fs::create_dir_all(unpacked.join("disk")).unwrap();
        std::fs::write(unpacked.join("disk/b.img"), "disk").unwrap();
        let operator = |text: &std::path::Path| ImageSource::of_operator(text.to_str().unwrap()).unwrap();
        let request = room.request(PullPolicy::Never);
        let of = async |source: &ImageSource, need: &WantedFiles| fetch(&room.cache, source, need, &request).await;
        let disk = of(&operator(&unpacked), &WantedFiles::Disk(None)).await.unwrap();
        assert_eq!(disk.paths, [unpacked.join("disk/b.img")]);
        let file = operator(&unpacked.join("disk/b.img"));
        assert_eq!(of(&file, &WantedFiles::Disk(None)).await.unwrap().paths, [unpacked.join("disk/b.img")]);
        let kernel = WantedFiles::Files(vec![BeneathPath::parse("vmlinuz").unwrap()]);
        assert!(matches!(of(&file, &kernel).await, Err(FetchError::OneFile { .. })));
        assert!(matches!(of(&operator(&unpacked), &kernel).await, Err(FetchError::NoSuchFile { .. })));
        assert!(of(&operator(&layout), &WantedFiles::Disk(None)).await.is_ok());
    });
}
