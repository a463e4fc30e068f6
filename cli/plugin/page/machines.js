// What a VirtualMachine and its instance come to in one row. No element and no request is made here.

const OVER = ["Succeeded", "Failed"];
const WELL = ["Running", "Migrating"];
const OFF = ["Stopped", "Halted", "Succeeded"];
const WAITING = ["Starting", "Stopping", "Terminating", "Provisioning", "WaitingForVolumeBinding", "WaitingForReceiver", "Pending",
  "Scheduling", "Scheduled", "Paused"];
/** Marks beside the word of a state. */
export const MARKS = { well: "●", waiting: "◐", wrong: "▲", off: "○" };

/** Conditions that are worth a note, and with which status. */
const NOTED = {
  Failure: "True", RestartRequired: "True", Paused: "True", Synchronized: "False", PodScheduled: "False", DataVolumesReady: "False",
  SoftwareEmulation: "True", EvictionRequested: "True", StorageError: "True",
};
const READABLE = {
  RestartRequired: "restart required", Paused: "paused", Synchronized: "not synchronized", PodScheduled: "not scheduled",
  DataVolumesReady: "DataVolumes are not ready", SoftwareEmulation: "slow", Failure: "failure",
};

/** A condition of either object as a person reads it; nothing if it is as it is meant to be. */
function note({ type, status, reason, message }) {
  if (NOTED[type] !== status) return undefined;
  return `${READABLE[type] ?? type}: ${message || reason || status}`;
}

const conditionsOf = (object) => object?.status?.conditions ?? [];

/** Conditions of both, those of the instance first; one that both have alike is there once. */
export function conditions(vm, vmi) {
  const seen = new Map();
  for (const [of, each] of [...conditionsOf(vmi).map((each) => ["instance", each]), ...conditionsOf(vm).map((each) => ["machine", each])]) {
    const same = `${each.type} ${each.status} ${each.message ?? ""}`;
    if (!seen.has(same)) seen.set(same, { ...each, of });
  }
  return [...seen.values()];
}

/** How a state looks. A machine that is stopped because its run failed is not as it is meant to be. */
export function look({ status, phase }) {
  if (phase === "Failed") return "wrong";
  if (WELL.includes(status)) return "well";
  if (OFF.includes(status)) return "off";
  return WAITING.includes(status) ? "waiting" : "wrong";
}

/** A row of the table. */
export function row(vm, vmi) {
  const { metadata } = vm ?? vmi;
  const phase = vmi ? vmi.status?.phase ?? "Pending" : "";
  const status = vm?.status?.printableStatus ?? (phase || "no state yet");
  const addresses = (vmi?.status?.interfaces ?? []).flatMap((each) => each.ipAddresses ?? (each.ipAddress ? [each.ipAddress] : []));
  const notes = conditions(vm, vmi).map(note).filter(Boolean);
  return {
    key: `${metadata.namespace}/${metadata.name}`,
    name: metadata.name, namespace: metadata.namespace, created: metadata.creationTimestamp,
    status, phase, node: vmi?.status?.nodeName ?? "", addresses, notes: [...new Set(notes)],
    strategy: vm ? vm.spec.runStrategy ?? (vm.spec.running ? "Always" : "Halted") : "",
    isPaused: conditionsOf(vmi).some(({ type, status: is }) => type === "Paused" && is === "True"),
    hasInstance: vmi !== undefined && !OVER.includes(phase), runs: phase === "Running", hasMachine: vm !== undefined,
    grace: (vmi?.spec ?? vm?.spec?.template?.spec)?.terminationGracePeriodSeconds ?? 30,
    vm, vmi,
  };
}

/** All rows of two maps. */
export function rows(vms, vmis) {
  const keys = new Set([...vms.keys(), ...vmis.keys()]);
  return [...keys].map((key) => row(vms.get(key), vmis.get(key)));
}

/** Whether a row is one that the filter asks for. */
export function matches(one, { text, namespace, status, phase }) {
  if (namespace && one.namespace !== namespace) return false;
  if (status && one.status !== status) return false;
  if (phase && (one.phase || "none") !== phase) return false;
  const within = [one.key, one.node, one.status, ...one.addresses, ...one.notes].join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((part) => within.includes(part));
}

const order = new Intl.Collator("en", { numeric: true });

/** Compares rows by a column; equal ones by their names. */
export function compare(column, direction) {
  return (one, other) => {
    const by = order.compare(String(one[column]), String(other[column])) * direction;
    return by || order.compare(one.key, other.key);
  };
}
