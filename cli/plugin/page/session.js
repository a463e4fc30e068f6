// The dialog of a console or a screen: what it shows, when it connects again, and how the keyboard leaves it.

import { REFUSED, open, path, unauthorized } from "./api.js";
import { button, element, find, setText } from "./dom.js";

const PROTOCOL = "plain.kubevirt.io";
/** Another user has connected: who connects again by itself would end that session, and so on for ever. */
const TAKEN = 1001;
const WAITS = [1000, 2000, 5000, 10_000, 20_000];
/** A session that lived so long was a good one. */
const GOOD = 10_000;
/** Who connects again by itself ends no session: of the answer that there is one, the code of HTTP. It may be that of the connection that was
 * lost, which is over a minute later. */
const HELD = 503;
const HELD_FOR = 70_000;
const HELD_WAIT = 2000;
const PRESERVED = "preserveSession=true";

/** Keys that a browser keeps for itself, or that have to be pressed at once. */
const isWayOut = (event) => event.ctrlKey && !event.altKey && (event.key === "]" || event.code === "BracketRight");

let current;

/** Ends the console or the screen that is open, if there is one: its user is out. */
export const closeCurrent = () => current?.close();

export class Session {
  #one; #verb; #view; #socket; #timer; #tries = 0; #began = 0; #lost = 0; #closed; #over = false; #before = document.activeElement;

  /** `make(place, one, pause)` makes the view: `attach(socket)`, `detach()`, `focus()`, `tools`, `hint`, `dispose()`,
   * and `parameter()`, where it goes on from a place. `pause(promise)` lets the connection go until the promise is kept. */
  constructor(one, verb, title, make, closed) {
    [this.#one, this.#verb, this.#closed] = [one, verb, closed];
    const dialog = find("session");
    setText(find("session-title"), `${title} of ${one.key}`);
    find("session-place").replaceChildren();
    find("session-again").onclick = () => { this.#tries = 0; this.#connect(true); };
    find("session-close").onclick = () => dialog.close();
    dialog.onclose = () => this.#end();
    dialog.addEventListener("keydown", this.#keys, true);
    // Escape is the guest's, or nobody's.
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
    this.#view = make(find("session-place"), one, this.#pause);
    find("session-tools").replaceChildren(...this.#view.tools.map(([label, act]) => button(label, () => { act(); this.#view.focus(); })));
    setText(find("session-hint"), `${this.#view.hint} Ctrl and ] leaves it for the buttons above.`);
    current = this;
    this.#connect(true);
  }

  close() { find("session").close(); }

  #keys = (event) => {
    if (!isWayOut(event)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    find("session-close").focus();
  };

  #pause = async (drawn) => {
    this.#drop();
    this.#say("Waiting: the guest prints faster than this page draws. It goes on when all is drawn.");
    await drawn;
    if (this.#over || this.#socket) return;
    this.#lost = Date.now();
    this.#connect(false);
  };

  /** By the user's wish, with the focus, or again by itself. */
  #connect(takesFocus) {
    clearTimeout(this.#timer);
    this.#drop();
    find("session-again").hidden = true;
    setText(find("session-state"), "Connecting …");
    const query = [takesFocus ? "" : PRESERVED, this.#view.parameter?.()].filter(Boolean).join("&");
    const subresource = path.subresource(this.#one, "virtualmachineinstances", this.#verb);
    const socket = open(query ? `${subresource}?${query}` : subresource, PROTOCOL);
    if (takesFocus) this.#lost = 0;
    this.#socket = socket;
    socket.addEventListener("open", () => {
      if (socket !== this.#socket) return;
      this.#began = Date.now();
      setText(find("session-state"), "Connected.");
    });
    socket.addEventListener("close", ({ code, reason }) => { if (socket === this.#socket) this.#ended(code, reason); });
    this.#view.attach(socket);
    if (takesFocus) this.#view.focus();
  }

  #ended(code, reason) {
    this.#view.detach();
    const refused = this.#socket.refused;
    find("session-again").hidden = false;
    // The token has ended: the page asks for another one.
    if (refused?.code === 401 || code === REFUSED + 401) unauthorized(refused);
    if ((refused?.code || code - REFUSED) === HELD && Date.now() - this.#lost < HELD_FOR) {
      this.#timer = setTimeout(() => this.#connect(false), HELD_WAIT);
      return this.#say(`Waiting: ${refused?.message ?? "there is a session"}. Connecting again in ${HELD_WAIT / 1000} s …`);
    }
    if (refused || code >= REFUSED) return this.#say(`Refused: ${refused ?? `code ${code - REFUSED}`}`);
    if (code === TAKEN) return this.#say(`Ended: ${reason.replace(/^EOF: /, "") || "another user has connected"}`);
    this.#lost = Date.now();
    if (this.#lost - this.#began > GOOD && this.#began) this.#tries = 0;
    const wait = WAITS[this.#tries];
    this.#tries += 1;
    const why = reason || (code === 1000 ? "closed" : `the connection was lost (${code})`);
    if (wait === undefined) return this.#say(`Ended: ${why}`);
    this.#timer = setTimeout(() => this.#connect(false), wait);
    return this.#say(`Ended: ${why}. Connecting again in ${wait / 1000} s …`);
  }

  #say(text) { setText(find("session-state"), text); }

  #drop() {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close();
    if (socket) this.#view.detach();
  }

  #end() {
    if (this.#over) return;
    this.#over = true;
    current = undefined;
    clearTimeout(this.#timer);
    this.#drop();
    this.#view.dispose();
    find("session").removeEventListener("keydown", this.#keys, true);
    find("session-place").replaceChildren();
    this.#before?.focus?.();
    this.#closed();
  }
}

export const hole = (label) => element("div", { role: "group", "aria-label": label, style: "height:100%" });
