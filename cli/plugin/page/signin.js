// The way in where a cluster serves the page: a token of the cluster, which this tab alone keeps. Where the plugin serves it, the address
// that it prints is the way in, and the form is not shown.

import { admit, byToken } from "./api.js";
import { find, setText } from "./dom.js";

const WRONG = "The API server does not accept this token. It may have ended, or be of another cluster.";

function say(text) {
  const field = find("token");
  setText(find("signin-error"), text);
  if (text) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

/** Shows the way in, with why it is needed; `entered(about)` once a token was accepted. */
export function offer(reason, entered) {
  const form = find("signin");
  form.hidden = !byToken;
  find("by-address").hidden = byToken;
  setText(find("entrance-title"), byToken ? "Sign in" : "No way in yet");
  setText(find("entrance-reason"), reason);
  find("signout").hidden = true;
  if (!byToken) return;
  say("");
  form.onsubmit = async (event) => {
    event.preventDefault();
    const token = find("token").value.trim();
    if (!token) return say("Paste a token first.");
    const send = find("signin-send");
    if (send.getAttribute("aria-disabled") === "true") return undefined;
    send.setAttribute("aria-disabled", "true");
    say("");
    try {
      const about = await admit(token);
      // Neither the field nor a form that the browser offers to keep has it any more.
      form.reset();
      entered(about);
    } catch (refusal) {
      say(refusal.code === 401 ? `${WRONG} ${refusal}` : String(refusal));
      find("token").focus();
    } finally {
      send.removeAttribute("aria-disabled");
    }
    return undefined;
  };
}

/** Shows the button that ends it; `left()` when it is used. */
export function leavable(left) {
  const button = find("signout");
  button.hidden = !byToken;
  button.onclick = left;
}
