// The screen: noVNC on RFB.

import RFB from "./vendor/novnc/core/rfb.js";
import { Session } from "./session.js";

function view(place, one) {
  let rfb;
  let waits = false;
  const focus = () => { if (rfb) rfb.focus(); else waits = true; };
  return {
    hint: "What is typed goes to the guest. A screen is a picture: a screen reader finds text in the serial console.",
    tools: [["Ctrl-Alt-Del", () => rfb?.sendCtrlAltDel()]],
    attach(socket) {
      place.replaceChildren();
      rfb = new RFB(place, socket, { shared: true });
      rfb.scaleViewport = true;
      rfb.background = "#000";
      const canvas = place.querySelector("canvas");
      canvas?.setAttribute("role", "img");
      canvas?.setAttribute("aria-label", `Screen of ${one.key}`);
      if (waits) { waits = false; rfb.focus(); }
    },
    detach() {
      const old = rfb;
      rfb = undefined;
      old?.disconnect();
    },
    focus,
    dispose() { place.replaceChildren(); },
  };
}

export const openScreen = (one, closed) => new Session(one, "vnc", "Screen", view, closed);
