// What the member has told, and who is told of it. One stream; it is closed while nobody looks at the page.

import { useEffect, useState } from "../vendor/htm-preact.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").StoryEvent} StoryEvent */

const SILENT_MS = 5000; // rounds come each second: a stream that says nothing for longer is broken
const MOST_EVENTS = 3000;
const MOST_SAMPLES = 150;
const GONE_MS = 120000;
const MOVED_MS = 4000;

/** @type {State} */
export const state = {
  link: "connecting", lostAt: 0, skew: 0, hello: null, cluster: null, partitions: null, moves: null, maps: null,
  safety: null, activity: null, news: null, lines: [], story: [], forgotten: false, gone: {}, history: {}, moved: {},
};
/** @type {Set<() => void>} */
const listeners = new Set();
let isTold = false;

/** Draw again, once for all that has come in this turn. */
function changed() {
  if (isTold) return;
  isTold = true;
  queueMicrotask(() => {
    isTold = false;
    for (const each of listeners) each();
  });
}

/** Return the state; the component that calls this is drawn anew when it changes. */
export function useStore() {
  const [, set] = useState(0);
  useEffect(() => {
    let count = 0;
    const listener = () => set(++count);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return state;
}

/** Return the time of the member, in milliseconds since 1970. */
export function now() {
  return Date.now() + state.skew;
}

/** @type {Record<string, (found: any) => void>} */
const takers = {
  hello(found) {
    state.skew = found.now - Date.now();
    if (state.hello && state.hello.this !== found.this) location.reload();
    state.hello = found;
  },
  cluster(found) {
    const present = new Set(found.members.map((/** @type {any} */ each) => each.address));
    for (const each of state.cluster ? state.cluster.members : [])
      if (!present.has(each.address)) state.gone[each.address] = found.at;
    for (const [address, at] of Object.entries(state.gone))
      if (present.has(address) || found.at - at > GONE_MS) delete state.gone[address];
    state.cluster = found;
  },
  partitions(found) {
    const before = state.partitions;
    if (before && before.rows.length === found.rows.length) {
      const owner = (/** @type {any} */ of, /** @type {number[]} */ row) => (row.length ? of.members[row[0]] : null);
      found.rows.forEach((/** @type {number[]} */ row, /** @type {number} */ i) => {
        if (owner(found, row) !== owner(before, before.rows[i])) state.moved[i] = Date.now();
      });
    }
    for (const [i, at] of Object.entries(state.moved)) if (Date.now() - at > MOVED_MS) delete state.moved[i];
    state.partitions = found;
  },
  moves(found) { state.moves = found; },
  safety(found) { state.safety = found; },
  activity(found) { state.activity = found; },
  news(found) { state.news = found; },
  lines(found) { state.lines = found; },
  maps(found) {
    state.maps = found;
    const names = new Set();
    for (const each of found.maps) {
      names.add(each.map);
      const kept = (state.history[each.map] ||= []);
      kept.push({ at: now(), reads: each.reads.per_s, writes: each.writes.per_s, p99: each.writes.p99_ms });
      if (kept.length > MOST_SAMPLES) kept.shift();
    }
    for (const name of Object.keys(state.history)) if (!names.has(name)) delete state.history[name];
  },
  story(found) {
    state.story = found.events;
    state.forgotten = found.forgotten;
  },
  events(found) {
    const known = new Set(state.story.map((each) => each.id));
    const fresh = found.events.filter((/** @type {StoryEvent} */ each) => !known.has(each.id));
    state.story = [...state.story, ...fresh].sort((a, b) => a.at - b.at).slice(-MOST_EVENTS);
    if (found.left_out) state.forgotten = true;
  },
};

/** @type {EventSource | null} */
let source = null;
let heardAt = 0;
let againAt = 0;

function open() {
  if (source) source.close();
  heardAt = Date.now();
  source = new EventSource("/console/stream");
  for (const [name, take] of Object.entries(takers))
    source.addEventListener(name, (event) => {
      heardAt = Date.now();
      take(JSON.parse(/** @type {MessageEvent} */ (event).data));
      state.link = "live";
      changed();
    });
  source.onerror = lost;
}

function lost() {
  if (source) source.close();
  source = null;
  againAt = Date.now() + 1000;
  if (state.link !== "lost") {
    state.lostAt = now();
    state.link = "lost";
  }
  changed();
}

/** Begin to listen, and go on: look each half second whether something has to be opened, closed or opened again. */
export function begin() {
  open();
  setInterval(() => {
    // Browsers have six connections for a host: a page that nobody looks at gives its one to others.
    if (document.hidden) {
      if (source) source.close();
      source = null;
      return;
    }
    if (source && Date.now() - heardAt > SILENT_MS) lost();
    if (!source && Date.now() >= againAt) open();
    changed(); // "for 3 s" counts on
  }, 500);
}

/**
 * Ask the member, and return its answer. Throws an `Error` that says what was wrong.
 * @param {string} path
 * @param {object} [change] what to send; without it nothing is changed
 * @returns {Promise<any>}
 */
export async function ask(path, change) {
  const key = state.hello ? state.hello.key : "";
  /** @type {RequestInit} */
  const how = change
    ? { method: "POST", headers: { "content-type": "application/json", "x-phalanx-key": key }, body: JSON.stringify(change) }
    : {};
  let response;
  try {
    response = await fetch(path, how);
  } catch {
    throw new Error("this member does not answer");
  }
  const text = await response.text();
  /** @type {any} */
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: text.slice(0, 200) };
  }
  if (!response.ok) throw new Error(found.error || `status ${response.status}`);
  return found;
}
