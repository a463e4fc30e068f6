// Elements from texts. What comes from a cluster or a guest is always a text node, never HTML.

export const find = (id) => document.getElementById(id);

/** An element with properties, attributes (`aria-…`, `data-…`, `role`, `scope`) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.includes("-") || ["role", "scope", "datetime", "for", "colspan"].includes(name)) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== ""));
  return made;
}

/** Replaces the text only where it is another one: what a screen reader has read is not read again. */
export function setText(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A button that says why it cannot be used instead of being skipped by the keyboard. */
export function button(label, act, reason = "", properties = {}) {
  return element("button", {
    type: "button", textContent: label, title: reason || null, "aria-disabled": reason ? "true" : undefined,
    onclick: (event) => { if (!reason) act(event); }, ...properties,
  });
}

/** How long ago, as one number with its unit. */
export function age(time, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (Number.isNaN(seconds)) return "";
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const [size, unit] = units.find(([each]) => seconds >= each) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit}`;
}

/** A time as its age, with the time itself for who asks. */
export function ago(time) {
  return time ? element("time", { datetime: time, title: time, textContent: age(time), className: "nowrap" }) : "";
}

/** Ages go on. */
setInterval(() => {
  for (const each of document.querySelectorAll("time[datetime]")) setText(each, age(each.dateTime));
}, 10_000);
