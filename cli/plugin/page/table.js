// The table of machines: filter, order, pages. A row that stays keeps its element, so that the keyboard's place is not lost.

import { element, find, setText, age, ago, button } from "./dom.js";
import { MARKS, compare, look, matches } from "./machines.js";

const PAGE = 100;
const COLUMNS = [
  ["name", "Name"], ["namespace", "Namespace"], ["status", "Status"], ["phase", "Phase"], ["node", "Node"], ["addresses", "Addresses"],
  ["created", "Age"], [null, "Notes"], [null, "Console"],
];

export class Table {
  #all = []; #page = 0; #column = "name"; #direction = 1; #lines = new Map(); #actions; #drawing = false;

  /** `actions(row)`: buttons of a row. */
  constructor(actions) {
    this.#actions = actions;
    const heads = COLUMNS.map(([column, title]) => (column
      ? element("th", { scope: "col" }, element("button", { type: "button", textContent: title, onclick: () => this.#sort(column) }))
      : element("th", { scope: "col", className: "plain", textContent: title })));
    find("machines").tHead.rows[0].replaceChildren(...heads);
    const form = find("filter");
    form.addEventListener("input", () => this.#again());
    form.addEventListener("reset", () => setTimeout(() => this.#again()));
    form.addEventListener("submit", (event) => event.preventDefault());
    find("previous").onclick = () => this.#turn(-1);
    find("next").onclick = () => this.#turn(1);
  }

  /** Other rows; drawn with the next frame, however many changes come before it. */
  show(rows) {
    this.#all = rows;
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => { this.#drawing = false; this.#draw(); });
  }

  #again() { this.#page = 0; this.#draw(); }

  #turn(by) { this.#page += by; this.#draw(); find("machines").scrollIntoView(); }

  #sort(column) {
    this.#direction = this.#column === column ? -this.#direction : 1;
    this.#column = column;
    this.#draw();
  }

  #draw() {
    const filter = Object.fromEntries(new FormData(find("filter")));
    this.#offer("namespace", "All namespaces", filter.namespace, (one) => one.namespace);
    this.#offer("status", "Any status", filter.status, (one) => one.status);
    this.#offer("phase", "Any phase", filter.phase, (one) => one.phase || "none");
    const direction = this.#column === "created" ? -this.#direction : this.#direction;
    const found = this.#all.filter((one) => matches(one, filter)).sort(compare(this.#column, direction));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.#page = Math.min(Math.max(this.#page, 0), pages - 1);
    this.#place(found.slice(this.#page * PAGE, (this.#page + 1) * PAGE));
    this.#tell(found.length, pages);
  }

  #tell(count, pages) {
    const all = this.#all.length;
    setText(find("count"), count === all ? `${all} in all` : `${count} of ${all}`);
    find("none").hidden = count > 0;
    setText(find("none"), all ? "No machine is as the filter asks." : "There are no machines here.");
    find("pages").hidden = pages === 1;
    setText(find("page"), `Page ${this.#page + 1} of ${pages}`);
    find("previous").disabled = this.#page === 0;
    find("next").disabled = this.#page === pages - 1;
    COLUMNS.forEach(([column], at) => {
      const head = find("machines").tHead.rows[0].cells[at];
      const is = this.#direction > 0 ? "ascending" : "descending";
      if (column === this.#column) head.setAttribute("aria-sort", is);
      else head.removeAttribute("aria-sort");
      if (column) head.firstChild.textContent = COLUMNS[at][1] + (column === this.#column ? (this.#direction > 0 ? " ↑" : " ↓") : "");
    });
  }

  /** What a filter offers: the values that there are, and the one that is chosen. */
  #offer(name, all, chosen, value) {
    const select = find("filter").elements[name];
    const values = [...new Set(this.#all.map(value))].sort();
    if (chosen && !values.includes(chosen)) values.push(chosen);
    const wanted = ["", ...values].join("\n");
    if (select.dataset.values === wanted) return;
    select.dataset.values = wanted;
    select.replaceChildren(new Option(all, ""), ...values.map((each) => new Option(each, each, false, each === chosen)));
  }

  #place(rows) {
    const body = find("machines").tBodies[0];
    const kept = new Map();
    for (const one of rows) {
      const line = this.#lines.get(one.key) ?? this.#line(one);
      this.#fill(line, one);
      kept.set(one.key, line);
    }
    for (const [key, line] of this.#lines) if (!kept.has(key)) line.remove();
    this.#lines = kept;
    let at = body.firstElementChild;
    for (const line of kept.values()) {
      if (line === at) at = at.nextElementSibling;
      else body.insertBefore(line, at);
    }
  }

  #line({ key, name, namespace }) {
    const link = element("a", { href: `#/machines/${key}`, textContent: name });
    return element("tr", {}, element("th", { scope: "row", className: "name" }, link), element("td", { textContent: namespace }),
      ...["state", "", "nowrap", "nowrap", "nowrap", "notes", "buttons-of-row"].map((className) => element("td", { className })));
  }

  #fill(line, one) {
    const { status, phase, node, addresses, notes, created } = one;
    const looks = look(one);
    const drawn = JSON.stringify([status, phase, node, addresses, notes, created, one.runs, one.hasInstance]);
    if (line.dataset.drawn === drawn) return;
    line.dataset.drawn = drawn;
    const [, , state, ofPhase, ofNode, ofAddresses, ofAge, ofNotes, ofButtons] = line.cells;
    state.className = `state ${looks}`;
    state.replaceChildren(element("span", { className: "mark", "aria-hidden": "true", textContent: MARKS[looks] }), status);
    setText(ofPhase, phase);
    setText(ofNode, node);
    ofAddresses.replaceChildren(...addresses.slice(0, 2).map((each) => element("div", { textContent: each })));
    if (ofAge.textContent !== age(created)) ofAge.replaceChildren(ago(created));
    setText(ofNotes, notes.join("; ").slice(0, 240));
    // Buttons are exchanged only where what they do is another thing.
    const buttons = this.#actions(one);
    const wanted = buttons.map(({ label, reason }) => `${label} ${reason}`).join("\n");
    if (ofButtons.dataset.buttons !== wanted) {
      ofButtons.dataset.buttons = wanted;
      const made = buttons.map(({ label, reason, act }) => button(label, act, reason, { "aria-label": `${label} of ${one.key}` }));
      ofButtons.replaceChildren(element("div", { className: "buttons" }, ...made));
    }
  }
}
