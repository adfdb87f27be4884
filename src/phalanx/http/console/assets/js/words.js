// Figures, times and names as people read them.

import { state } from "./store.js";

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  let at = -1;
  let size = value;
  do {
    size /= 1024;
    at++;
  } while (size >= 1024 && at < 4);
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${["KiB", "MiB", "GiB", "TiB", "PiB"][at]}`;
}

/** @param {number} ms */
export function span(ms) {
  const s = Math.max(ms, 0) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
}

/** @param {number} at */
export function clock(at) {
  const time = new Date(at);
  const two = (/** @type {number} */ part) => String(part).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 1 ? `${Math.round(ms * 1000)} µs` : ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** @param {number} value @param {string} one @param {string} [many] */
export function counted(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many || one + "s"}`;
}

/** Return the short name of a member: its port, where all are on one host. @param {string} address */
export function short(address) {
  const all = state.cluster ? state.cluster.members : [];
  const host = address.slice(0, address.lastIndexOf(":"));
  const isAlone = all.every((each) => each.address.startsWith(host + ":"));
  return isAlone ? address.slice(address.lastIndexOf(":") + 1) : address;
}

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** Return the letter of a member in a list, so that colours do not tell alone. @param {number} place */
export function letter(place) {
  const first = place >= LETTERS.length ? LETTERS[Math.floor(place / LETTERS.length) - 1] || "" : "";
  return first + LETTERS[place % LETTERS.length];
}

/** Return all members by their addresses, in one order that stays while members come and go. */
export function order() {
  const found = new Set(state.cluster ? state.cluster.members.map((each) => each.address) : []);
  for (const each of state.partitions ? state.partitions.members : []) found.add(each);
  for (const each of Object.keys(state.gone)) found.add(each);
  return [...found].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
}

/** Split sentences so that names of members in them become links. @param {string} text */
export function capital(text) {
  return text ? text[0].toUpperCase() + text.slice(1) : text;
}
