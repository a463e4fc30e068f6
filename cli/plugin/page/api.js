// Requests to the server of this page: it passes on what the page uses to the API server, with the rights of the user's kubectl, or, where a
// cluster serves the page, with those of the user's token.

const KEPT = "garboard-token";
/** Whether the way in is a token of the cluster; else it is the address that `kubectl garboard dashboard` prints. */
export const byToken = document.documentElement.dataset.entrance === "token";
const WATCH_PROTOCOL = "garboard.watch";
/** Close codes from here on are a refusal: the code of HTTP is added. */
export const REFUSED = 4000;

let token = sessionStorage.getItem(KEPT) ?? "";

/** What an API server, or this page's server, answered instead. */
export class Refused extends Error {
  constructor(status) {
    super(status.message || `it answered with ${status.code}`);
    this.code = status.code;
    this.reason = status.reason ?? "";
  }

  /** Verbatim, with reason and code, as kubectl prints it. */
  toString() {
    return `${this.message} (${[this.reason, this.code].filter(Boolean).join(", ")})`;
  }
}

/** Lets this browser in: with the key of the address, or the token that it has from before. */
export async function enter() {
  const key = byToken ? null : new URLSearchParams(location.hash.slice(1)).get("key");
  if (!key) return token !== "";
  // Neither history nor a bookmark keeps it.
  history.replaceState(null, "", "/");
  const answer = await fetch("/session", { method: "POST", body: key });
  if (!answer.ok) throw await refusal(answer);
  token = (await answer.json()).token;
  sessionStorage.setItem(KEPT, token);
  return true;
}

/** Lets this browser in with a token of the cluster, if the API server accepts it; who its user is. */
export async function admit(candidate) {
  // A header has no other characters; neither has a token.
  if (!/^[A-Za-z0-9._~+/=-]+$/.test(candidate)) throw new Refused({ message: "this is no token: it has characters that none has", code: 0 });
  const before = token;
  token = candidate;
  try {
    const about = await get("/about");
    sessionStorage.setItem(KEPT, token);
    return about;
  } catch (refusal) {
    token = before;
    throw refusal;
  }
}

/** The protocol by which a websocket names the token, to which a page can add no header: the plugin's, or that of Kubernetes. */
function tokenProtocol() {
  if (!byToken) return `garboard.token.${token}`;
  return `base64url.bearer.authorization.k8s.io.${btoa(token).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

async function refusal(answer) {
  const text = await answer.text();
  try {
    const status = JSON.parse(text);
    if (status.kind === "Status") return new Refused(status);
  } catch {
    // It is shown as it is.
  }
  return new Refused({ code: answer.status, message: text.trim().slice(0, 2000) });
}

/** How long a read that got no answer waits until it is asked again, ms. A browser gives up what is under way when a network of its computer
 * comes or goes, also what stays on that computer. */
const READ_AGAIN = [200, 1000, 3000];

async function fetched(path, options) {
  const waits = options.method ? [] : [...READ_AGAIN];
  for (;;) {
    try {
      return await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}` } });
    } catch (failure) {
      if (!waits.length || options.signal?.aborted) throw failure;
    }
    await new Promise((resolve) => { setTimeout(resolve, waits.shift()); });
  }
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetched(path, options);
  } catch {
    const hint = byToken ? "is the connection to the cluster up?" : "does `kubectl garboard dashboard` still run?";
    throw new Refused({ message: `the dashboard does not answer: ${hint}`, reason: "", code: 0 });
  }
  if (!answer.ok) {
    const refused = await refusal(answer);
    if (refused.code === 401) unauthorized(refused);
    throw refused;
  }
  return answer;
}

let whenUnauthorized = () => {};

/** What is called when the token is not accepted any more. */
export const onUnauthorized = (act) => { whenUnauthorized = act; };
export const unauthorized = (refusal) => whenUnauthorized(refusal);

/** A document. */
export const get = async (path, options) => (await ask(path, options)).json();

/** A change; its answer is not used. */
export async function put(path, body) {
  await (await ask(path, { method: "PUT", body: body === undefined ? undefined : JSON.stringify(body) })).text();
}

/** A websocket. A refusal comes as a text, and is kept in `refused` when it closes. With what a console begins comes as its first text, and is the
 * detail of an event `position`. */
export function open(path, protocol = WATCH_PROTOCOL) {
  const address = new URL(path, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address, [protocol, tokenProtocol()]);
  socket.binaryType = "arraybuffer";
  if (protocol === WATCH_PROTOCOL) return socket;
  // The first listener: nothing else sees the text, which is none of the stream's.
  socket.addEventListener("message", (event) => {
    if (typeof event.data !== "string") return;
    event.stopImmediatePropagation();
    const begun = position(event.data);
    if (begun) socket.dispatchEvent(new CustomEvent("position", { detail: begun }));
    else socket.refused = parsed(event.data);
  });
  return socket;
}

/** With what a console begins: `position`, `resumed`, `missed`. */
function position(text) {
  try {
    const begun = JSON.parse(text);
    return typeof begun.position === "string" ? begun : undefined;
  } catch {
    return undefined;
  }
}

/** A refusal that came as a text. */
export function parsed(text) {
  try {
    const status = JSON.parse(text);
    return status.kind === "Status" ? new Refused(status) : undefined;
  } catch {
    return new Refused({ message: text.slice(0, 2000), code: 0 });
  }
}

export const forget = () => { token = ""; sessionStorage.removeItem(KEPT); };

export const path = {
  kubevirt: (namespace, kind) => `/apis/kubevirt.io/v1/${namespace ? `namespaces/${namespace}/` : ""}${kind}`,
  events: (namespace) => `/api/v1/namespaces/${namespace}/events`,
  subresource: (machine, kind, verb) =>
    `/apis/subresources.kubevirt.io/v1/namespaces/${machine.namespace}/${kind}/${machine.name}/${verb}`,
  why: (machine) => `/why/${machine.namespace}/${machine.name}`,
};
