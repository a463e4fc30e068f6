//! What an argv of ours makes QEMU hold. Pure. Its values are JSON objects or QEMU's `key=value,…`, in which a comma of a
//! value is written twice.

use serde_json::Value;

use super::HeldByQemu;

/// What QEMU holds after these arguments; without drives, which the plan describes better.
pub(super) fn held_by(argv: &[String]) -> HeldByQemu {
    let mut held = HeldByQemu::default();
    for pair in argv.windows(2) {
        let [option, value] = pair else { continue };
        match option.as_str() {
            "-blockdev" => held.block_nodes.extend(node_names(value)),
            "-device" => held.devices.extend(id(value)),
            "-chardev" => held.chardevs.extend(id(value)),
            "-netdev" => held.netdevs.extend(id(value)),
            _ => {}
        }
    }
    held
}

fn id(value: &str) -> Option<String> {
    match serde_json::from_str::<Value>(value) {
        Ok(value) => value.get("id")?.as_str().map(str::to_owned),
        Err(_) => keys(value).into_iter().find_map(|(key, value)| (key == "id").then_some(value)),
    }
}

/// Names of a node and of those that are described inside of it.
fn node_names(value: &str) -> Vec<String> {
    match serde_json::from_str::<Value>(value) {
        Ok(value) => {
            let mut names = Vec::new();
            nested(&value, &mut names);
            names
        }
        Err(_) => {
            let is_name = |key: &str| key == "node-name" || key.ends_with(".node-name");
            keys(value).into_iter().filter_map(|(key, value)| is_name(&key).then_some(value)).collect()
        }
    }
}

fn nested(value: &Value, names: &mut Vec<String>) {
    let Value::Object(fields) = value else { return };
    names.extend(fields.get("node-name").and_then(Value::as_str).map(str::to_owned));
    fields.values().for_each(|inner| nested(inner, names));
}

/// `key=value` by commas that stand alone.
fn keys(text: &str) -> Vec<(String, String)> {
    const COMMA: &str = "\u{0}";
    let text = text.replace(",,", COMMA);
    let pairs = text.split(',').filter_map(|part| part.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.replace(COMMA, ","))).collect()
}
