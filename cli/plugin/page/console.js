// The serial console: xterm.js on the bytes of the guest.

import { FitAddon } from "./vendor/xterm-addon-fit/lib/addon-fit.mjs";
import { Terminal } from "./vendor/xterm/lib/xterm.mjs";
import { Session } from "./session.js";

const SCROLLBACK_LINES = 5000;
/** Of a terminal (RIS). It comes after what is still to be drawn, which a call of `reset` would not. */
const RESET = "\x1bc";
/** So many bytes may wait to be drawn. Above 50 MB xterm.js discards what comes. */
const MOST_WAITING = 16 << 20;

function view(place, one, pause) {
  const terminal = new Terminal({
    cursorBlink: false, scrollback: SCROLLBACK_LINES, fontFamily: "ui-monospace, 'DejaVu Sans Mono', monospace", fontSize: 14,
    screenReaderMode: readsScreens(), convertEol: false,
    // A guest may print links (OSC 8): they lead nowhere from here.
    linkHandler: { activate() {} },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  terminal.textarea.setAttribute("aria-label", `Serial console of ${one.key}. Control and right bracket leaves it.`);
  const size = new ResizeObserver(() => fit.fit());
  size.observe(place);
  const encoder = new TextEncoder();
  let socket;
  // The place behind what was shown: the epoch is not known before anything was, and of a controller that says nothing of places.
  let epoch, offset = 0, isShown = false;
  // Bytes that wait to be drawn, and who waits until none does.
  let waiting = 0, whenDrawn;
  const draw = (bytes) => {
    waiting += bytes.length;
    terminal.write(bytes, () => {
      waiting -= bytes.length;
      if (waiting) return;
      whenDrawn?.();
      whenDrawn = undefined;
    });
  };
  const begin = ({ position, resumed, missed }) => {
    // What follows was shown before, in part.
    if (isShown && !resumed) terminal.write(RESET);
    if (missed) terminal.write(`\r\n[${missed} bytes are missing here]\r\n`);
    const [before, behind] = position.split(".");
    [epoch, offset] = [before, Number(behind)];
  };
  const send = (bytes) => { if (socket?.readyState === WebSocket.OPEN) socket.send(bytes); };
  terminal.onData((text) => send(encoder.encode(text)));
  terminal.onBinary((text) => send(Uint8Array.from(text, (one) => one.charCodeAt(0))));
  return {
    hint: "Enter makes most guests print their prompt. A serial port has no size: lines are as long as the guest takes them to be.",
    tools: [
      ["Screen reader", () => { terminal.options.screenReaderMode = !terminal.options.screenReaderMode; keep(terminal.options.screenReaderMode); }],
      ["Clear", () => terminal.clear()],
    ],
    attach(opened) {
      socket = opened;
      let isBegun = false;
      opened.addEventListener("position", ({ detail }) => { isBegun = true; begin(detail); });
      opened.addEventListener("message", ({ data }) => {
        if (!isBegun) {
          isBegun = true;
          epoch = undefined;
          if (isShown) terminal.write(RESET);
        }
        isShown = true;
        draw(new Uint8Array(data));
        offset += data.byteLength;
        // A socket of a browser holds nobody back: it is closed, and what follows is asked for when this is drawn.
        if (waiting > MOST_WAITING) pause(new Promise((resolve) => { whenDrawn = resolve; }));
      });
    },
    parameter: () => `position=${epoch === undefined ? "new" : `${epoch}.${offset}`}`,
    detach() { socket = undefined; },
    focus() { terminal.focus(); },
    dispose() { size.disconnect(); terminal.dispose(); },
  };
}

const KEPT = "garboard-screen-reader";
const readsScreens = () => localStorage.getItem(KEPT) === "yes";
const keep = (is) => localStorage.setItem(KEPT, is ? "yes" : "no");

export const openConsole = (one, closed) => new Session(one, "console", "Serial console", view, closed);
