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

/** @param {number | null | undefined} value */
export function rate(value) {
  return value === null || value === undefined ? "–" : value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** Return what all members' addresses have in common: the host before, or the domain and the port behind. */
function common() {
  const all = state.cluster ? state.cluster.members.map((each) => each.address) : [];
  const [first] = all;
  if (!first) return { before: "", behind: "" };
  const before = first.slice(0, first.lastIndexOf(":") + 1);
  if (all.every((each) => each.startsWith(before))) return { before, behind: "" };
  const colon = first.lastIndexOf(":");
  let behind = first.slice(colon);
  if (!all.every((each) => each.endsWith(behind))) return { before: "", behind: "" };
  for (let at = first.lastIndexOf(".", colon - 1); at > 0; at = first.lastIndexOf(".", at - 1)) {
    const longer = first.slice(at);
    if (!all.every((each) => each.endsWith(longer)) || /^[0-9.:]*$/.test(longer)) break; // parts of numbers are no names
    behind = longer;
  }
  return { before: "", behind };
}

/** Return the short name of a member: without what all have in common. @param {string} address */
export function short(address) {
  const { before, behind } = common();
  if (before && address.startsWith(before)) return address.slice(before.length);
  return behind && address.endsWith(behind) ? address.slice(0, -behind.length) : address;
}

/** Return a sentence with the short names of members. @param {string} text */
export function brief(text) {
  const { before, behind } = common();
  return before ? text.replaceAll(before, "") : behind ? text.replaceAll(behind, "") : text;
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
