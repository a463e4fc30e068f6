// The page: who is in, what is watched, and which of its views is shown.

import { byToken, enter, forget, get, onUnauthorized, path } from "./api.js";
import { button, element, find, setText } from "./dom.js";
import { Detail } from "./detail.js";
import { rows } from "./machines.js";
import { closeCurrent } from "./session.js";
import { leavable, offer } from "./signin.js";
import { Table } from "./table.js";
import { Watched } from "./watch.js";

const SCOPE = "garboard-namespace";
const SCOPE_OF = "garboard-namespace-of";
const THEME = "garboard-theme";
const watches = [];
const states = new Map();
let scope = sessionStorage.getItem(SCOPE) ?? "";
let scopeOf = sessionStorage.getItem(SCOPE_OF) ?? "";
let about = {};
let table, detail, lastLink;

// ---- messages

function failed(refusal, what = "") {
  const text = (what ? `${what}: ` : "") + String(refusal);
  const known = [...find("problems").children].find((each) => each.dataset.text === text);
  if (known) return;
  const close = button("Dismiss", () => { line.remove(); });
  const line = element("div", { className: "problem", "data-text": text }, element("p", { textContent: text }), close);
  find("problems").append(line);
  while (find("problems").children.length > 4) find("problems").firstChild.remove();
}

let fading;
function done(text) {
  setText(find("done"), text);
  clearTimeout(fading);
  fading = setTimeout(() => setText(find("done"), ""), 8000);
}

/** Whether what is shown is up to date: of all watches the worst counts. */
function live(name) {
  return (state) => {
    states.set(name, state);
    const waits = [...states.values()].filter((each) => each !== "live");
    const longest = Math.max(...waits, 0);
    const text = waits.length ? `◐ Not up to date: asking again in ${Math.max(1, Math.round(longest / 1000))} s` : "● Live";
    find("live").className = waits.length ? "waiting" : "well";
    setText(find("live"), text);
  };
}

// ---- what is watched

let vms, vmis;

function watch() {
  for (const each of watches.splice(0)) each.stop();
  states.clear();
  const of = (kind) => new Watched(path.kubevirt(scope, kind), { changed: draw, failed: listFailed, live: live(kind) });
  vms = of("virtualmachines");
  vmis = of("virtualmachineinstances");
  watches.push(vms, vmis);
}

/** Who may not list all namespaces looks into one. */
function listFailed(refusal) {
  if (refusal.code === 401) return out(refusal);
  if (refusal.code === 403) {
    find("scope").hidden = false;
    setText(find("scope-reason"), String(refusal));
    find("scope").elements.namespace.value ||= scope || about.namespace || "";
    if (!scope && about.namespace) return look(about.namespace);
    return undefined;
  }
  return failed(refusal);
}

/** Where to look from now on, also when the page is loaded again: a namespace, or everywhere. */
function choose(namespace) {
  scope = namespace;
  sessionStorage.setItem(SCOPE, namespace);
}

function look(namespace) {
  choose(namespace);
  watch();
}

function draw() {
  if (!vms || !vmis) return;
  table.show(rows(vms.objects, vmis.objects));
  detail?.update(vms.objects.get(detail.key), vmis.objects.get(detail.key));
}

// ---- console and screen

function streams(one) {
  const reason = one.runs ? "" : "It does not run.";
  const noScreen = one.vmi?.spec.domain?.devices?.autoattachGraphicsDevice === false ? "It has no graphics device." : "";
  const go = (file, name) => async () => {
    const found = await import(file);
    found[name](one, () => {});
  };
  return [
    { label: "Console", reason, act: go("./console.js", "openConsole") },
    { label: "Screen", reason: reason || noScreen, act: go("./screen.js", "openScreen") },
  ];
}

// ---- views

/** Shows what the address names. `isFirst`: the browser has just loaded the page, and its own order of the keyboard counts. */
function show(isFirst = false) {
  const [, key] = location.hash.match(/^#\/machines\/([a-z0-9.-]+\/[a-z0-9.-]+)$/) ?? [];
  detail?.stop();
  states.delete("events");
  detail = undefined;
  find("machine").replaceChildren();
  find("list").hidden = Boolean(key);
  find("machine").hidden = !key;
  if (key) {
    lastLink = key;
    detail = Object.assign(new Detail(key, { failed, done, streams, live: live("events") }), { key });
    document.title = `${key} – Garboard`;
    draw();
    if (!isFirst) find("machine-title").focus();
  } else {
    document.title = "Machines – Garboard";
    draw();
    // Back to the row that was left, if it is still there.
    const link = lastLink && document.querySelector(`a[href="#/machines/${lastLink}"]`);
    if (!isFirst) (link || find("list-title")).focus();
  }
}

const ENDED = "The API server does not accept your token any more: sign in again.";

/** The way in again, with why. What was shown is there no more: the next user may be another one. */
function leave(reason = "") {
  forget();
  closeCurrent();
  for (const each of watches.splice(0)) each.stop();
  detail?.stop();
  [detail, vms, vmis] = [undefined, undefined, undefined];
  states.clear();
  table?.show([]);
  find("problems").replaceChildren();
  find("machine").replaceChildren();
  for (const id of ["list", "machine", "scope"]) find(id).hidden = true;
  find("question").close("no");
  find("entrance").hidden = false;
  for (const id of ["live", "who", "done"]) setText(find(id), "");
  document.title = byToken ? "Sign in – Garboard" : "Garboard";
  offer(reason, entered);
  find(byToken ? "token" : "entrance-title").focus();
}

/** Once for all that is refused at the same time. */
function out(refusal) {
  if (find("entrance").hidden) leave(byToken ? `${ENDED} ${refusal ?? ""}`.trim() : String(refusal ?? ""));
}

/** The user is in. `isFirst`: the browser has just loaded the page. */
function entered(found, isFirst = false) {
  onUnauthorized(out);
  about = found;
  // Another user may look elsewhere.
  if (byToken && scopeOf !== (about.user ?? "")) choose("");
  scopeOf = about.user ?? "";
  sessionStorage.setItem(SCOPE_OF, scopeOf);
  find("entrance").hidden = true;
  setText(find("who"), [about.user ?? "user unknown", about.context && `context ${about.context}`].filter(Boolean).join(", "));
  leavable(() => { choose(""); leave("You are signed out."); });
  table ??= new Table(streams);
  watch();
  show(isFirst);
}

function colours() {
  const select = find("theme");
  const apply = () => {
    if (select.value) document.documentElement.dataset.theme = select.value;
    else delete document.documentElement.dataset.theme;
  };
  select.value = localStorage.getItem(THEME) ?? "";
  select.onchange = () => { localStorage.setItem(THEME, select.value); apply(); };
  apply();
}

async function start() {
  colours();
  find("skip").onclick = () => find("main").focus();
  find("scope").addEventListener("submit", (event) => {
    event.preventDefault();
    look(new FormData(find("scope")).get("namespace").trim());
  });
  addEventListener("hashchange", () => { if (find("entrance").hidden) show(); });
  let found;
  try {
    if (!await enter()) return leave();
    found = await get("/about");
  } catch (refusal) {
    return leave(byToken && refusal.code === 401 ? `${ENDED} ${refusal}` : String(refusal));
  }
  entered(found, true);
  return undefined;
}

start();
