// The settings of a map, and, where this member allows it, a form that changes them.

import { html, useState } from "../vendor/htm-preact.js";
import { ask } from "./store.js";
import { bytes, count, counted, span } from "./words.js";

/** @typedef {import("./types").Settings} Settings */

/** @param {{ state: import("./types").State, row: import("./types").MapRow }} props */
export function SettingsForm({ state, row }) {
  const hello = state.hello;
  const [isOpen, setOpen] = useState(false);
  const [said, setSaid] = useState({ good: "", bad: "" });
  const now = row.settings;
  const protection = now.protection;
  const shown = [
    ["Backups", `${now.backups.sync} synchronous, ${now.backups.async} asynchronous`],
    ["Entries at most", now.max_entries ? count(now.max_entries) : "any number"],
    ["Bytes at most", now.max_bytes ? bytes(now.max_bytes) : "any number"],
    ["Evicted first", now.eviction],
    ["Idle entries expire after", now.max_idle_ms ? span(now.max_idle_ms) : "never"],
    ["Merge policy", now.merge_policy],
    ["Dicts are stored as", now.dicts === "any" ? "each program says" : now.dicts],
    ["Writes wait for their sync", now.durability],
    ["Protection", protection.on ? `refuses ${[protection.reads && "reads", protection.writes && "writes"].filter(Boolean).join(" and ")} ${[protection.minimum && `below ${counted(protection.minimum, "member")}`, protection.majority && "without the majority"].filter(Boolean).join(" or ")}` : "none"],
    ["Schema", now.schema ? schemaInWords(now.schema) : "none: readers work it out of the values"],
    ["Journal", now.journal.capacity ? `${count(now.journal.capacity)} events a partition` : "none"],
  ];
  return html`<section class="card" aria-labelledby="settings-title"><h2 id="settings-title">Settings</h2>
    <dl class="facts">${shown.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
    ${hello && hello.may_change ? html`<button class="quiet" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => { setOpen(!isOpen); setSaid({ good: "", bad: "" }); }}>${isOpen ? "Leave them" : "Change…"}</button>`
      : html`<p class="note">They are changed by <code>phalanx map</code>, or here if the member has <code>http_allow_changes</code>.</p>`}
    ${isOpen && hello ? html`<${Form} hello=${hello} name=${row.map} now=${now} setSaid=${setSaid} />` : ""}
    <div aria-live="polite">${said.good ? html`<p class="good-text">✓ ${said.good}</p>` : ""}${said.bad ? html`<p class="bad-text">✕ ${said.bad}</p>` : ""}</div>
  </section>`;
}

/** @param {import("./types").Schema} schema */
function schemaInWords(schema) {
  const columns = schema.columns.map((each) => `${each.name} ${each.type}${schema.key.includes(each.name) ? " (key)" : ""}`);
  return `${columns.join(", ")}${schema.more ? ` and ${count(schema.more)} more` : ""}`;
}

/** @param {any} props */
function Form({ hello, name, now, setSaid }) {
  const begun = { sync: now.backups.sync, async: now.backups.async, max_entries: now.max_entries, max_bytes: now.max_bytes, eviction: now.eviction, max_idle_s: now.max_idle_ms / 1000, merge_policy: now.merge_policy, dicts: now.dicts, durability: now.durability };
  const [wanted, setWanted] = useState(/** @type {Record<string, any>} */ (begun));
  const set = (/** @type {string} */ what, /** @type {any} */ value) => setWanted({ ...wanted, [what]: value });
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    /** @type {Record<string, any>} */
    const change = { map: name };
    if (wanted.sync !== now.backups.sync || wanted.async !== now.backups.async) change.backups = { sync: wanted.sync, async: wanted.async };
    for (const what of ["max_entries", "max_bytes", "eviction", "merge_policy", "dicts", "durability"]) if (wanted[what] !== now[what]) change[what] = wanted[what];
    if (Math.round(wanted.max_idle_s * 1000) !== now.max_idle_ms) change.max_idle_ms = Math.round(wanted.max_idle_s * 1000);
    if (Object.keys(change).length === 1) return setSaid({ good: "", bad: "nothing is different" });
    setSaid({ good: "", bad: "" });
    try {
      await ask("/console/settings", change);
      setSaid({ good: "the cluster has the new settings; replicas follow", bad: "" });
    } catch (error) {
      setSaid({ good: "", bad: String(/** @type {Error} */ (error).message) });
    }
  };
  const number = (/** @type {string} */ what, /** @type {string} */ said, /** @type {number} */ most, /** @type {string} */ step) => html`<label>${said}<input type="number" min="0" max=${most} step=${step} required value=${wanted[what]} onInput=${(/** @type {any} */ e) => set(what, e.target.valueAsNumber)} /></label>`;
  const choice = (/** @type {string} */ what, /** @type {string} */ said) => html`<label>${said}<select value=${wanted[what]} onChange=${(/** @type {any} */ e) => set(what, e.target.value)}>${hello.choices[what].map((/** @type {string} */ each) => html`<option key=${each} value=${each} selected=${each === wanted[what]}>${each}</option>`)}</select></label>`;
  return html`<form class="settings" onSubmit=${submit}>
    ${number("sync", "Synchronous backups", 6, "1")}${number("async", "Asynchronous backups", 6, "1")}
    ${number("max_entries", "Entries at most (0: any)", 1e12, "1")}${number("max_bytes", "Bytes at most (0: any)", 2 ** 53 - 1, "1")}
    ${choice("eviction", "Evicted first")}${number("max_idle_s", "Idle seconds (0: for ever)", 315360000, "any")}
    ${choice("merge_policy", "Merge policy")}${choice("dicts", "Dicts (any: each program says)")}
    ${choice("durability", "Writes wait for their sync")}
    <button>Change the settings of ${name}</button></form>`;
}
