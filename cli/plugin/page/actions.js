// What may be done with a machine. The API decides; a button only says beforehand what it would refuse in any case.

import { get, path, put } from "./api.js";
import { element, find, setText } from "./dom.js";

const stays = "It does not run.";

/** Buttons of a machine: label, why it cannot be used now (or nothing), verb, kind, and what has to be confirmed. */
export function actionsOf(one) {
  const { name, hasMachine, hasInstance, runs, isPaused } = one;
  const none = hasMachine ? "" : "It is an instance without a VirtualMachine: delete it to end it.";
  return [
    { verb: "start", label: "Start", kind: "virtualmachines", reason: none || (hasInstance ? "It runs, or is about to." : "") },
    { verb: "stop", label: "Stop", kind: "virtualmachines", reason: none || (hasInstance ? "" : stays), ask: stopping(one) },
    {
      verb: "restart", label: "Restart", kind: "virtualmachines", reason: none || (hasInstance ? "" : stays),
      ask: [`Restart ${name}?`, `The guest is asked to power down, as by its power button, and has ${seconds(one.grace)} for it; then it is `
        + "ended. The machine starts again as a new instance, with what was changed in its specification meanwhile."],
    },
    isPaused
      ? { verb: "unpause", label: "Unpause", kind: "virtualmachineinstances", reason: runs ? "" : stays }
      : { verb: "pause", label: "Pause", kind: "virtualmachineinstances", reason: runs ? "" : stays },
    {
      verb: "softreboot", label: "Reboot the guest", kind: "virtualmachineinstances", reason: runs ? "" : stays,
      ask: [`Reboot the guest of ${name}?`, "The guest is asked to shut down and start again, by its agent or its power button. One that does "
        + "not react keeps running."],
    },
  ];
}

const seconds = (count) => (count === 1 ? "1 second" : `${count} seconds`);

function stopping({ name, namespace, grace, strategy }) {
  const after = ["Always", "Once"].includes(strategy)
    ? `Its runStrategy ${strategy} becomes Halted, so that it stays down.`
    : `Its runStrategy ${strategy || "(none)"} stays.`;
  return [`Stop ${name}?`, `The guest of ${namespace}/${name} is asked to power down, as by its power button. It has ${seconds(grace)} `
    + `for it (terminationGracePeriodSeconds); a guest that is not down by then is ended, as if the power failed. ${after}`];
}

/** Asks the user; the keyboard is on the harmless answer, and comes back to where it was. */
export function confirmed(title, text, yes) {
  const dialog = find("question");
  setText(find("question-title"), title);
  find("question-text").replaceChildren(element("p", { textContent: text }));
  setText(find("question-yes"), yes);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Does it, after a confirmation where there is one. Whether it was asked of the API; a refusal is thrown. */
export async function act(one, { verb, label, kind, ask }) {
  if (ask && !await confirmed(ask[0], ask[1], label)) return false;
  await put(path.subresource(one, kind, verb), {});
  return true;
}

/** What `kubectl garboard why` says, unless `signal` gives it up. */
export const why = (one, signal) => get(path.why(one), { signal });
