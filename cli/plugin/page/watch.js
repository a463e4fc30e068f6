// A collection of the API server that is kept up to date: listed in parts, then watched. A watch is a websocket, because a browser opens
// six other connections to one server at most, for all its tabs together.

import { get, open, parsed } from "./api.js";

const PART = 500;
const FIRST_WAIT = 500;
const LONGEST_WAIT = 30_000;
/** A watch that lived so long was a good one: the next failure waits shortly again. */
const GOOD = 10_000;

export class Watched {
  #path; #query; #changed; #failed; #live; #end = new AbortController(); #socket; #timer; #wait = FIRST_WAIT; #version = "";

  /** Objects by `NAMESPACE/NAME`. */
  objects = new Map();

  /** `changed()` after each change, `failed(refusal)` once for each failed try, `live(state)` with "live" or a time to wait. */
  constructor(path, { query = "", changed, failed, live }) {
    [this.#path, this.#query, this.#changed, this.#failed, this.#live] = [path, query, changed, failed, live];
    this.#list();
  }

  get #stopped() { return this.#end.signal.aborted; }

  /** A list that is under way, or waits to be asked again, is given up too: the page's next user may be another one. */
  stop() {
    this.#end.abort();
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  async #list() {
    if (this.#stopped) return;
    try {
      const found = new Map();
      let more = "";
      do {
        const query = `limit=${PART}${this.#query}${more && `&continue=${encodeURIComponent(more)}`}`;
        const part = await get(`${this.#path}?${query}`, { signal: this.#end.signal });
        for (const each of part.items ?? []) found.set(key(each), each);
        [more, this.#version] = [part.metadata.continue ?? "", part.metadata.resourceVersion];
      } while (more && !this.#stopped);
      if (this.#stopped) return;
      this.objects = found;
      this.#changed();
      this.#watch();
    } catch (refusal) {
      this.#again(refusal);
    }
  }

  #watch() {
    if (this.#stopped) return;
    const began = Date.now();
    const query = `watch=true&allowWatchBookmarks=true&resourceVersion=${encodeURIComponent(this.#version)}${this.#query}`;
    const socket = open(`${this.#path}?${query}`);
    this.#socket = socket;
    let refusal;
    socket.onopen = () => this.#live("live");
    socket.onmessage = ({ data }) => { refusal = this.#take(typeof data === "string" ? data : new TextDecoder().decode(data)) ?? refusal; };
    socket.onclose = () => {
      if (this.#stopped) return;
      const wasGood = Date.now() - began > GOOD;
      if (wasGood) this.#wait = FIRST_WAIT;
      // API servers end watches after a while: it goes on where it was.
      if (wasGood && !refusal) this.#watch();
      else this.#again(refusal);
    };
  }

  /** One event; a refusal if it was that. */
  #take(text) {
    const refusal = parsed(text);
    if (refusal) return refusal;
    const { type, object } = JSON.parse(text);
    // 410: what happened since is no longer known.
    if (type === "ERROR") {
      const status = parsed(JSON.stringify(object));
      this.#socket.close();
      return status;
    }
    this.#version = object.metadata.resourceVersion;
    if (type === "BOOKMARK") return undefined;
    if (type === "DELETED") this.objects.delete(key(object));
    else this.objects.set(key(object), object);
    this.#changed();
    return undefined;
  }

  #again(refusal) {
    if (this.#stopped) return;
    const wait = refusal?.code === 410 ? 0 : this.#wait * (0.75 + Math.random() / 2);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    if (refusal && refusal.code !== 410) this.#failed(refusal);
    if (this.#stopped) return;
    this.#live(wait);
    this.#timer = setTimeout(() => this.#list(), wait);
  }
}

export const key = ({ metadata }) => `${metadata.namespace}/${metadata.name}`;
