//! The state behind the fake monitor.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};

/// What the guest does when it is asked to power down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestPower {
    /// Nothing, like a guest without an ACPI driver.
    #[default]
    Ignores,
    /// Powers off at once.
    Obeys,
}

/// What the guest does when a device is to be unplugged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestUnplug {
    /// Lets go at once.
    #[default]
    Obeys,
    /// Refuses with an error.
    Refuses,
    /// Nothing.
    Ignores,
}

/// Which file a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorIdentity {
    /// Number of the file system's device.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
}

/// A descriptor the machine was given, owned by it.
#[derive(Debug)]
pub(super) struct HeldDescriptor(i32);

impl HeldDescriptor {
    pub(super) fn new(number: i32) -> Self {
        Self(number)
    }

    fn identity(&self) -> Option<DescriptorIdentity> {
        let metadata = std::fs::metadata(format!("/proc/self/fd/{}", self.0)).ok()?;
        Some(DescriptorIdentity { device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for HeldDescriptor {
    fn drop(&mut self) {
        let _ = nix::unistd::close(self.0);
    }
}

/// A machine in memory: enough of QEMU to drive a supervisor.
#[derive(Debug)]
pub struct FakeMachine {
    /// `prelaunch`, `running`, `paused`, `shutdown`, …
    pub status: String,
    /// What the guest does when it is asked to power down.
    pub guest_power: GuestPower,
    /// What the guest does when a device is to be unplugged.
    pub guest_unplug: GuestUnplug,
    /// Devices by id.
    pub devices: BTreeMap<String, Value>,
    /// Block nodes by name.
    pub block_nodes: BTreeMap<String, Value>,
    /// Objects (`object-add`) by id.
    pub objects: BTreeMap<String, Value>,
    /// Network backends by id.
    pub netdevs: BTreeMap<String, Value>,
    /// QEMU stays when the guest is off (`set-action` with `shutdown=pause`).
    pub stays_at_power_off: bool,
    unplugging: Vec<String>,
    named_descriptors: BTreeMap<String, HeldDescriptor>,
    descriptor_sets: BTreeMap<i64, Vec<(HeldDescriptor, String)>>,
    jobs: BTreeMap<String, Value>,
}

impl Default for FakeMachine {
    fn default() -> Self {
        Self {
            status: "prelaunch".to_owned(),
            guest_power: GuestPower::default(),
            guest_unplug: GuestUnplug::default(),
            devices: BTreeMap::new(),
            block_nodes: BTreeMap::new(),
            objects: BTreeMap::new(),
            netdevs: BTreeMap::new(),
            stays_at_power_off: false,
            unplugging: Vec::new(),
            named_descriptors: BTreeMap::new(),
            descriptor_sets: BTreeMap::new(),
            jobs: BTreeMap::new(),
        }
    }
}

/// Everything a command does.
#[derive(Debug, Default)]
pub(super) struct Effect {
    pub(super) reply: Option<Value>,
    pub(super) refusal: Option<(&'static str, String)>,
    /// Sent before the reply.
    pub(super) events: Vec<(&'static str, Value)>,
    /// Whether QEMU ends after the reply.
    pub(super) ends: bool,
}

impl Effect {
    fn reply(value: Value) -> Self {
        Self { reply: Some(value), ..Self::default() }
    }

    fn done() -> Self {
        Self::reply(json!({}))
    }

    fn refuse(class: &'static str, desc: impl Into<String>) -> Self {
        Self { refusal: Some((class, desc.into())), ..Self::default() }
    }

    fn with_event(mut self, name: &'static str, data: Value) -> Self {
        self.events.push((name, data));
        self
    }
}

impl FakeMachine {
    /// Which file the descriptor passed by `getfd` under this name refers to.
    pub fn named_descriptor(&self, name: &str) -> Option<DescriptorIdentity> {
        self.named_descriptors.get(name)?.identity()
    }

    /// Which files the descriptors of a set refer to.
    pub fn descriptor_set(&self, set: i64) -> Vec<DescriptorIdentity> {
        let descriptors = self.descriptor_sets.get(&set).into_iter().flatten();
        descriptors.filter_map(|(descriptor, _)| descriptor.identity()).collect()
    }

    /// The guest answers an unplug request it has not answered yet; gives the event to emit.
    pub(super) fn finish_unplug(&mut self, device: &str) -> Option<(&'static str, Value)> {
        let position = self.unplugging.iter().position(|waiting| waiting == device)?;
        self.unplugging.remove(position);
        self.devices.remove(device)?;
        Some(("DEVICE_DELETED", json!({ "device": device, "path": format!("/machine/peripheral/{device}") })))
    }

    pub(super) fn execute(&mut self, command: &str, arguments: &Value, descriptors: Vec<HeldDescriptor>) -> Effect {
        let text = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        match command {
            "query-status" => Effect::reply(json!({"status": self.status, "running": self.status == "running",
                "singlestep": false})),
            "query-version" => Effect::reply(version()),
            "query-name" => Effect::reply(json!({"name": "fake"})),
            "query-kvm" => Effect::reply(json!({"enabled": false, "present": true})),
            "query-commands" => Effect::reply(COMMANDS.iter().map(|name| json!({ "name": name })).collect()),
            "query-qmp-schema" => Effect::reply(schema()),
            "query-named-block-nodes" => Effect::reply(self.block_nodes.values().cloned().collect()),
            "query-jobs" => Effect::reply(self.jobs.values().cloned().collect()),
            "query-blockstats" if arguments["query-nodes"] == true => Effect::reply(self.block_stats()),
            // A machine without drives and backends of its own.
            "query-block" | "query-blockstats" | "query-chardev" => Effect::reply(json!([])),
            "query-fdsets" => Effect::reply(self.query_descriptor_sets()),
            "query-balloon" => Effect::refuse("DeviceNotActive", "No balloon device has been activated"),
            "qom-list" => self.list_objects(&text("path")),
            "cont" => self.resume(),
            "stop" => self.pause(),
            "system_reset" => self.reset(),
            "set-action" => self.set_action(arguments),
            "set_link" => self.set_link(&text("name")),
            "screendump" => self.draw(&text("filename"), &text("format")),
            "input-send-event" => Effect::done(),
            "system_powerdown" => self.power_down(),
            "quit" => {
                let event = ("SHUTDOWN", json!({"guest": false, "reason": "host-qmp-quit"}));
                Effect { ends: true, events: vec![event], ..Effect::done() }
            }
            "device_add" => add(&mut self.devices, &text("id"), arguments, "device"),
            "device_del" => self.unplug(&text("id")),
            "object-add" => add(&mut self.objects, &text("id"), arguments, "object"),
            "object-del" => remove(&mut self.objects, &text("id"), "object"),
            "netdev_add" => add(&mut self.netdevs, &text("id"), arguments, "netdev"),
            "netdev_del" => remove(&mut self.netdevs, &text("id"), "netdev"),
            "blockdev-add" => add(&mut self.block_nodes, &text("node-name"), arguments, "node"),
            "blockdev-del" => remove(&mut self.block_nodes, &text("node-name"), "node"),
            "blockdev-create" => self.create_image(arguments),
            "job-dismiss" => self.dismiss(&text("id")),
            "getfd" => self.keep_named(text("fdname"), descriptors),
            "closefd" => match self.named_descriptors.remove(&text("fdname")) {
                Some(_) => Effect::done(),
                None => Effect::refuse("GenericError", format!("File descriptor named '{}' not found", text("fdname"))),
            },
            "add-fd" => self.keep_in_set(arguments, descriptors),
            "remove-fd" => self.remove_set(arguments),
            "add_client" => self.add_client(&text("fdname")),
            other => Effect::refuse("CommandNotFound", format!("The command {other} has not been found")),
        }
    }

    fn block_stats(&self) -> Value {
        self.block_nodes.keys().map(|name| json!({"node-name": name, "stats": {}})).collect()
    }

    fn resume(&mut self) -> Effect {
        if self.status == "running" {
            return Effect::done();
        }
        if self.status == "shutdown" {
            return Effect::refuse("GenericError", "Resetting the Virtual Machine is required");
        }
        "running".clone_into(&mut self.status);
        Effect::done().with_event("RESUME", json!({}))
    }

    fn pause(&mut self) -> Effect {
        if self.status != "running" {
            return Effect::done();
        }
        "paused".clone_into(&mut self.status);
        Effect::done().with_event("STOP", json!({}))
    }

    fn power_down(&mut self) -> Effect {
        let effect = Effect::done().with_event("POWERDOWN", json!({}));
        match self.guest_power {
            GuestPower::Ignores => effect,
            GuestPower::Obeys => {
                "shutdown".clone_into(&mut self.status);
                let effect = effect.with_event("SHUTDOWN", json!({"guest": true, "reason": "guest-shutdown"}));
                match self.stays_at_power_off {
                    true => effect.with_event("STOP", json!({})),
                    false => Effect { ends: true, ..effect },
                }
            }
        }
    }

    /// A guest that does not run is at its first instruction afterwards.
    fn reset(&mut self) -> Effect {
        if self.status != "running" {
            "prelaunch".clone_into(&mut self.status);
        }
        Effect::done().with_event("RESET", json!({"guest": false, "reason": "host-qmp-system-reset"}))
    }

    fn set_action(&mut self, arguments: &Value) -> Effect {
        match arguments["shutdown"].as_str() {
            None => {}
            Some("pause") => self.stays_at_power_off = true,
            Some("poweroff") => self.stays_at_power_off = false,
            Some(other) => {
                return Effect::refuse("GenericError", format!("Parameter 'shutdown' does not accept value '{other}'"));
            }
        }
        Effect::done()
    }

    /// What became of the link no query reports, as in QEMU.
    fn set_link(&self, name: &str) -> Effect {
        if self.devices.contains_key(name) || self.netdevs.contains_key(name) {
            return Effect::done();
        }
        Effect::refuse("DeviceNotFound", format!("Device '{name}' not found"))
    }

    /// A picture of one pixel, or what is enough of one.
    fn draw(&self, filename: &str, format: &str) -> Effect {
        let set = filename.strip_prefix("/dev/fdset/").and_then(|set| set.parse().ok());
        let Some((descriptor, _)) = set.and_then(|set: i64| self.descriptor_sets.get(&set)?.first()) else {
            return Effect::refuse("GenericError", format!("Could not open '{filename}'"));
        };
        let picture: &[u8] = if format == "png" { b"\x89PNG\r\n\x1a\n" } else { b"P6 1 1 255 abc" };
        let written = OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/fd/{}", descriptor.0))
            .and_then(|mut file| file.write_all(picture));
        match written {
            Ok(()) => Effect::done(),
            Err(error) => Effect::refuse("GenericError", error.to_string()),
        }
    }

    fn unplug(&mut self, id: &str) -> Effect {
        if !self.devices.contains_key(id) {
            return Effect::refuse("DeviceNotFound", format!("Device '{id}' not found"));
        }
        if self.unplugging.iter().any(|waiting| waiting == id) {
            return Effect::refuse("GenericError", format!("Device {id} is already in the process of unplug"));
        }
        let path = format!("/machine/peripheral/{id}");
        match self.guest_unplug {
            GuestUnplug::Obeys => {
                self.devices.remove(id);
                Effect::done().with_event("DEVICE_DELETED", json!({"device": id, "path": path}))
            }
            GuestUnplug::Refuses => {
                Effect::done().with_event("DEVICE_UNPLUG_GUEST_ERROR", json!({"device": id, "path": path}))
            }
            GuestUnplug::Ignores => {
                self.unplugging.push(id.to_owned());
                Effect::done()
            }
        }
    }

    fn list_objects(&self, path: &str) -> Effect {
        let ids: Vec<_> = match path {
            "/machine/peripheral" => self.devices.keys().collect(),
            "/objects" => self.objects.keys().collect(),
            _ => return Effect::refuse("DeviceNotFound", format!("Device '{path}' not found")),
        };
        let children = ids.into_iter().map(|id| json!({"name": id, "type": "child<device>"}));
        Effect::reply([json!({"name": "type", "type": "string"})].into_iter().chain(children).collect())
    }

    fn create_image(&mut self, arguments: &Value) -> Effect {
        let id = arguments["job-id"].as_str().unwrap_or_default().to_owned();
        if self.jobs.contains_key(&id) {
            return Effect::refuse("GenericError", format!("Job ID '{id}' already in use"));
        }
        let path = arguments["options"]["filename"].as_str().unwrap_or_default();
        let mut job = json!({"id": id, "type": "create", "status": "concluded", "current-progress": 1,
            "total-progress": 1});
        let failed = !Path::new(path).parent().is_some_and(Path::exists);
        if failed {
            job["error"] = format!("Could not create '{path}': No such file or directory").into();
        }
        self.jobs.insert(id.clone(), job);
        let last = if failed { "aborting" } else { "pending" };
        let statuses = ["created", "running", "waiting", last, "concluded"];
        statuses.iter().fold(Effect::done(), |effect, status| {
            effect.with_event("JOB_STATUS_CHANGE", json!({"id": id, "status": status}))
        })
    }

    fn dismiss(&mut self, id: &str) -> Effect {
        match self.jobs.remove(id) {
            Some(_) => Effect::done().with_event("JOB_STATUS_CHANGE", json!({"id": id, "status": "null"})),
            None => Effect::refuse("GenericError", "Job not found"),
        }
    }

    fn keep_named(&mut self, name: String, descriptors: Vec<HeldDescriptor>) -> Effect {
        let Some(descriptor) = descriptors.into_iter().next() else { return no_descriptor() };
        self.named_descriptors.insert(name, descriptor);
        Effect::done()
    }

    fn keep_in_set(&mut self, arguments: &Value, descriptors: Vec<HeldDescriptor>) -> Effect {
        let Some(descriptor) = descriptors.into_iter().next() else { return no_descriptor() };
        let free = (0..).find(|set| !self.descriptor_sets.contains_key(set)).unwrap_or_default();
        let set = arguments["fdset-id"].as_i64().unwrap_or(free);
        let number = descriptor.0;
        let opaque = arguments["opaque"].as_str().unwrap_or_default().to_owned();
        self.descriptor_sets.entry(set).or_default().push((descriptor, opaque));
        Effect::reply(json!({"fdset-id": set, "fd": number}))
    }

    fn remove_set(&mut self, arguments: &Value) -> Effect {
        let set = arguments["fdset-id"].as_i64().unwrap_or(-1);
        match self.descriptor_sets.remove(&set) {
            Some(_) => Effect::done(),
            None => Effect::refuse("GenericError", format!("File descriptor named 'fdset-id:{set}' not found")),
        }
    }

    fn query_descriptor_sets(&self) -> Value {
        let shown = |(descriptor, opaque): &(HeldDescriptor, String)| json!({"fd": descriptor.0, "opaque": opaque});
        let sets = self.descriptor_sets.iter();
        sets.map(|(set, held)| json!({"fdset-id": set, "fds": held.iter().map(shown).collect::<Vec<_>>()})).collect()
    }

    fn add_client(&mut self, name: &str) -> Effect {
        let Some(descriptor) = self.named_descriptors.remove(name) else {
            return Effect::refuse("GenericError", format!("File descriptor named '{name}' has not been found"));
        };
        // A VNC server's first message.
        let _ = nix::sys::socket::send(descriptor.0, b"RFB 003.008\n", nix::sys::socket::MsgFlags::MSG_NOSIGNAL);
        Effect::done()
    }
}

fn no_descriptor() -> Effect {
    Effect::refuse("GenericError", "No file descriptor supplied via SCM_RIGHTS")
}

fn add(map: &mut BTreeMap<String, Value>, id: &str, arguments: &Value, kind: &str) -> Effect {
    if id.is_empty() {
        return Effect::refuse("GenericError", "Parameter 'id' is missing");
    }
    if map.contains_key(id) {
        return Effect::refuse("GenericError", format!("Duplicate {kind} ID '{id}'"));
    }
    map.insert(id.to_owned(), arguments.clone());
    Effect::done()
}

fn remove(map: &mut BTreeMap<String, Value>, id: &str, kind: &str) -> Effect {
    match map.remove(id) {
        Some(_) => Effect::done(),
        None => Effect::refuse("GenericError", format!("{kind} '{id}' not found")),
    }
}

pub(super) fn version() -> Value {
    json!({"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": "fake"})
}

/// What `query-commands` lists.
const COMMANDS: &[&str] = &[
    "add-fd",
    "add_client",
    "blockdev-add",
    "blockdev-create",
    "blockdev-del",
    "closefd",
    "cont",
    "device_add",
    "device_del",
    "getfd",
    "input-send-event",
    "job-dismiss",
    "netdev_add",
    "netdev_del",
    "object-add",
    "object-del",
    "qom-list",
    "query-balloon",
    "query-block",
    "query-blockstats",
    "query-chardev",
    "query-commands",
    "query-fdsets",
    "query-jobs",
    "query-kvm",
    "query-name",
    "query-named-block-nodes",
    "query-qmp-schema",
    "query-status",
    "query-version",
    "quit",
    "remove-fd",
    "screendump",
    "set-action",
    "set_link",
    "stop",
    "system_powerdown",
    "system_reset",
];

/// The schema of two commands, in the form of QEMU.
fn schema() -> Value {
    json!([
        {"name": "stop", "meta-type": "command", "arg-type": "0", "ret-type": "0"},
        {"name": "device_del", "meta-type": "command", "arg-type": "1", "ret-type": "0"},
        {"name": "0", "meta-type": "object", "members": []},
        {"name": "1", "meta-type": "object", "members": [{"name": "id", "type": "str"}]},
        {"name": "str", "meta-type": "builtin", "json-type": "string"}
    ])
}
