// One machine: why it is as it is, what can be done, its facts, conditions and events.

import { act, actionsOf, why } from "./actions.js";
import { path } from "./api.js";
import { ago, button, element, find } from "./dom.js";
import { MARKS, conditions, look, row } from "./machines.js";
import { Watched } from "./watch.js";

const SETTLE = 1500;
const MOST_EVENTS = 100;
const HEALTH = { well: "Well", waiting: "Waiting", wrong: "Wrong" };

export class Detail {
  #one; #key; #events; #host; #timer; #asked = ""; #turn = 0; #asking; #part;

  /** `host`: `failed(refusal)`, `done(text)`, `console(row)`, `screen(row)`, `live`. */
  constructor(key, host) {
    [this.#key, this.#host] = [key, host];
    const [namespace, name] = key.split("/");
    this.#one = { namespace, name, key };
    const section = (id, title) => element("section", { "aria-labelledby": `${id}-title` },
      element("h2", { id: `${id}-title`, textContent: title }), element("div", { id }));
    find("machine").replaceChildren(
      element("p", {}, element("a", { href: "#/", textContent: "← All machines" })),
      element("div", { className: "title" }, element("h1", { id: "machine-title", tabIndex: -1, textContent: name }),
        element("p", { textContent: namespace }), element("p", { id: "state", role: "status", className: "state" })),
      element("div", { className: "buttons", id: "actions", role: "group", "aria-label": `What can be done with ${name}` }),
      section("why", "Why"),
      element("div", { className: "columns" }, section("facts", "Facts"), section("conditions", "Conditions")), section("events", "Events"));
    this.#part = (id) => find(id);
    this.#part("why").append(element("p", { textContent: "Asking the cluster …" }));
    this.#events = new Watched(path.events(namespace), {
      changed: () => this.#drawEvents(), failed: (refusal) => this.#eventsFailed(refusal), live: host.live,
    });
  }

  stop() {
    this.#events.stop();
    clearTimeout(this.#timer);
    this.#turn += 1;
    this.#asking?.abort();
  }

  /** The objects as they are now; what was not there before is asked about again. */
  update(vm, vmi) {
    if (!vm && !vmi) {
      this.#part("state").replaceChildren("not there (any more)");
      this.#part("actions").replaceChildren();
      this.#ask("gone");
      return;
    }
    this.#one = row(vm, vmi);
    const { status, phase } = this.#one;
    const looks = look(this.#one);
    this.#part("state").className = `state ${looks}`;
    const text = `${status}${phase && phase !== status ? ` (phase ${phase})` : ""}`;
    if (this.#part("state").dataset.text !== text) {
      this.#part("state").dataset.text = text;
      this.#part("state").replaceChildren(element("span", { className: "mark", "aria-hidden": "true", textContent: MARKS[looks] }), text);
    }
    this.#drawActions();
    this.#drawFacts();
    this.#drawConditions(conditions(vm, vmi));
    this.#ask(JSON.stringify([vm?.status, vmi?.status, vmi?.metadata.uid]));
  }

  // ---- why

  /** Not for each change at once: a start is a dozen, and a diagnosis several requests. */
  #ask(about) {
    if (about === this.#asked) return;
    const isFirst = this.#asked === "";
    this.#asked = about;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#judge(), isFirst ? 0 : SETTLE);
  }

  /** One question at a time: the one before it is given up. */
  async #judge() {
    const turn = this.#turn += 1;
    this.#asking?.abort();
    this.#asking = new AbortController();
    try {
      const diagnosis = await why(this.#one, this.#asking.signal);
      if (turn === this.#turn) this.#drawWhy(diagnosis);
    } catch (refusal) {
      if (turn === this.#turn) this.#part("why").replaceChildren(element("p", { className: "message", textContent: String(refusal) }), this.#askAgain());
    }
  }

  #askAgain() {
    return button("Ask again", () => this.#judge());
  }

  #drawWhy({ health, cause, since, also, evidence, next, unseen }) {
    const list = (title, texts, as = (text) => text) => (texts.length
      ? [element("h3", { textContent: title }), element("ul", {}, ...texts.map((text) => element("li", { className: "message" }, as(text))))] : []);
    const rows = evidence.map((each) => element("tr", {}, element("td", {}, element("code", { textContent: each.object })),
      element("td", {}, element("code", { textContent: each.field })), element("td", { className: "message", textContent: each.value }),
      element("td", { className: "nowrap" }, ago(each.since))));
    const seen = rows.length ? [element("h3", { textContent: "Seen" }), element("div", { className: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ...["Object", "Field", "Value", "Since"].map((text) => element("th", { scope: "col", className: "plain", textContent: text })))),
      element("tbody", {}, ...rows)))] : [];
    const mark = element("span", { className: `state ${health}` },
      element("span", { className: "mark", "aria-hidden": "true", textContent: MARKS[health] }), HEALTH[health] ?? health);
    const card = element("div", { className: `card ${health}` },
      element("p", { className: "cause" }, mark, since ? " for " : "", since ? ago(since) : "", ": ", cause),
      ...list("Also", also), ...list("To do", next, (text) => element("code", { textContent: text })), ...seen,
      ...list("Not seen", unseen), element("p", {}, this.#askAgain()));
    const had = this.#part("why").contains(document.activeElement);
    this.#part("why").replaceChildren(card);
    if (had) card.querySelector("button").focus();
  }

  // ---- what can be done

  #drawActions() {
    const one = this.#one;
    const all = [
      ...actionsOf(one).map((action) => ({ ...action, act: () => this.#do(action) })),
      ...this.#host.streams(one),
    ];
    const wanted = all.map(({ label, reason }) => `${label} ${reason}`).join("\n");
    const place = this.#part("actions");
    if (place.dataset.wanted === wanted) return;
    place.dataset.wanted = wanted;
    const focused = place.contains(document.activeElement) ? document.activeElement.textContent : undefined;
    place.replaceChildren(...all.map(({ label, reason, act: go }) => button(label, go, reason)));
    [...place.children].find((each) => each.textContent === focused)?.focus();
  }

  async #do(action) {
    try {
      if (await act(this.#one, action)) this.#host.done(`${action.label}: asked of ${this.#one.key}.`);
    } catch (refusal) {
      this.#host.failed(refusal, `${action.label} of ${this.#one.key}`);
    }
  }

  // ---- facts, conditions, events

  #drawFacts() {
    const { vm, vmi, strategy, node, addresses, created } = this.#one;
    const spec = vmi?.spec ?? vm?.spec.template.spec;
    const guest = vmi?.status?.guestOSInfo;
    const cores = vmi?.status?.currentCPUTopology ?? spec?.domain?.cpu;
    const facts = [
      ["Run strategy", strategy || "none: an instance alone"], ["Node", node], ["Addresses", addresses.join(", ")],
      ["Guest", guest?.prettyName ?? guest?.name], ["vCPUs", cores && String((cores.sockets ?? 1) * (cores.cores ?? 1) * (cores.threads ?? 1))],
      ["Memory", vmi?.status?.memory?.guestCurrent ?? spec?.domain?.memory?.guest ?? spec?.domain?.resources?.requests?.memory],
      ["Machine type", vmi?.status?.machine?.type ?? spec?.domain?.machine?.type],
      ["Volumes", (spec?.volumes ?? []).map((each) => each.name).join(", ")], ["Age", ago(created)], ["Runs for", ago(since(vmi))],
    ];
    const drawn = JSON.stringify(facts.map(([name, value]) => [name, value?.dateTime ?? value]));
    const place = this.#part("facts");
    if (place.dataset.drawn === drawn) return;
    place.dataset.drawn = drawn;
    place.replaceChildren(element("dl", { className: "facts" }, ...facts.filter(([, value]) => value)
      .flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", {}, value)])));
  }

  #drawConditions(all) {
    const rows = all.map(({ type, status, reason, message, lastTransitionTime, of }) => element("tr", {},
      element("th", { scope: "row", className: "name", textContent: type }), element("td", { textContent: status }), element("td", { textContent: of }),
      element("td", { className: "message" }, [reason, message].filter(Boolean).join(": ")), element("td", {}, ago(lastTransitionTime))));
    this.#part("conditions").replaceChildren(rows.length ? listed(["Condition", "Status", "Of", "Reason and message", "Since"], rows) : "None.");
  }

  #eventsFailed(refusal) {
    this.#part("events").replaceChildren(element("p", { className: "message", textContent: String(refusal) }));
  }

  #drawEvents() {
    const all = [...this.#events.objects.values()].filter((each) => concerns(each, this.#one.name)).sort((one, other) => (last(one) < last(other) ? 1 : -1));
    const rows = all.slice(0, MOST_EVENTS).map((each) => element("tr", {},
      element("td", {}, ago(last(each))),
      element("td", { className: `state ${each.type === "Warning" ? "wrong" : ""}` },
        element("span", { className: "mark", "aria-hidden": "true", textContent: each.type === "Warning" ? "▲" : "·" }), each.type),
      element("td", { textContent: each.reason }), element("td", {}, `${each.involvedObject.kind} ${each.involvedObject.name}`),
      element("td", { className: "message" }, each.message, (each.count ?? 1) > 1 ? ` (${each.count} times)` : "")));
    const more = all.length > rows.length ? element("p", { textContent: `The last ${MOST_EVENTS} of ${all.length}.` }) : "";
    this.#part("events").replaceChildren(rows.length ? listed(["Last", "Type", "Reason", "Object", "Message"], rows) : "None that the API server still has.", more);
  }
}

function listed(titles, rows) {
  return element("div", { className: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, ...titles.map((text) => element("th", { scope: "col", className: "plain", textContent: text })))),
    element("tbody", {}, ...rows)));
}

/** The machine, its instance and claims of its name; launcher pods, whose name has the instance's UID behind it. */
function concerns({ involvedObject: { kind, name } }, machine) {
  return name === machine || (kind === "Pod" && name.startsWith(`virt-launcher-${machine}-`) && !name.slice(`virt-launcher-${machine}-`.length).includes("-"));
}

const last = (event) => event.lastTimestamp ?? event.eventTime ?? event.metadata.creationTimestamp ?? "";

function since(vmi) {
  if (vmi?.status?.phase !== "Running") return undefined;
  return (vmi.status.phaseTransitionTimestamps ?? []).find((each) => each.phase === "Running")?.phaseTransitionTimestamp;
}
