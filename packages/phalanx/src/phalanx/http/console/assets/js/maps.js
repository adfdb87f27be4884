// Maps: sizes, rates, settings; one map in detail.

import { html } from "../vendor/htm-preact.js";
import { Look } from "./look.js";
import { SettingsForm } from "./settings.js";
import { bytes, count, counted, duration, rate, short } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").MapRow} MapRow */

/** @param {{ state: State, rest: string[] }} props */
export function Maps({ state, rest }) {
  const maps = state.maps;
  if (!maps) return html`<p class="loading">Counting…</p>`;
  const chosen = maps.maps.find((each) => each.map === rest[0]);
  const missing = [
    maps.silent.length ? `${maps.silent.map(short).join(", ")} did not answer` : "",
    maps.uncounted.length ? `${maps.uncounted.map(short).join(", ")} count no calls: no HTTP port` : "",
  ].filter(Boolean).join("; ");
  return html`<section class="card"><h2>${counted(maps.maps.length, "map")} <small>${maps.more ? `and ${maps.more} more · ` : ""}of all members; calls of the last ${maps.over_s} s${missing ? html` · <span class="warn-text">${missing}</span>` : ""}</small></h2>
    ${maps.maps.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Maps"><table class="stacked">
      <thead><tr><th scope="col">Map</th><th scope="col" class="right">Entries</th><th scope="col" class="right">Bytes</th><th scope="col" class="right">Bytes of backups</th>
        <th scope="col" class="right">Reads/s</th><th scope="col" class="right">Writes/s</th><th scope="col" class="right">p99 read</th><th scope="col" class="right">p99 write</th><th scope="col">Since this page is open</th>
        <th scope="col" class="right">Evicted</th><th scope="col" class="right">Expired</th><th scope="col">Backups</th></tr></thead>
      <tbody>${maps.maps.map((each) => html`<${Row} key=${each.map} each=${each} state=${state} isChosen=${each === chosen} />`)}</tbody></table></div>`
      : html`<p class="empty">No map has an entry yet.</p>`}</section>
    ${chosen ? html`<div class="columns"><${Look} key=${chosen.map} state=${state} name=${chosen.map} /><${SettingsForm} key=${chosen.map} state=${state} row=${chosen} /></div>` : ""}`;
}

/** @param {{ each: MapRow, state: State, isChosen: boolean }} props */
function Row({ each, state, isChosen }) {
  const { reads, writes, settings } = each;
  return html`<tr class=${isChosen ? "chosen" : ""}><th scope="row"><a href="#/maps/${encodeURIComponent(each.map)}" aria-current=${isChosen ? "true" : undefined}>${each.map}</a></th>
    <td class="right" data-label="Entries">${count(each.entries)}${settings.max_entries ? html` <small>of ${count(settings.max_entries)}</small>` : ""}</td>
    <td class="right" data-label="Bytes">${bytes(each.bytes)}</td><td class="right" data-label="Bytes of backups">${bytes(each.backup_bytes)}</td>
    <td class="right" data-label="Reads/s">${rate(reads.per_s)}</td><td class="right" data-label="Writes/s">${rate(writes.per_s)}</td>
    <td class="right" data-label="p99 read">${duration(reads.p99_ms)}</td><td class="right" data-label="p99 write">${duration(writes.p99_ms)}</td>
    <td data-label="Since this page is open"><${Spark} samples=${state.history[each.map] || []} />${each.errors ? html`<span class="bad-text"> ✕ ${counted(each.errors, "error")}</span>` : ""}</td>
    <td class="right" data-label="Evicted">${count(each.evicted)}</td><td class="right" data-label="Expired">${count(each.expired)}</td>
    <td data-label="Backups">${settings.backups.sync} sync${settings.backups.async ? `, ${settings.backups.async} async` : ""}</td></tr>`;
}

/** Reads as an area, writes as a line. @param {{ samples: import("./types").Sample[] }} props */
function Spark({ samples }) {
  const most = Math.max(1, ...samples.map((each) => Math.max(each.reads, each.writes)));
  const wide = 120, high = 26;
  const x = (/** @type {number} */ i) => (wide * (i + 150 - samples.length)) / 149;
  const y = (/** @type {number} */ value) => high - 2 - (value / most) * (high - 4);
  const line = (/** @type {"reads" | "writes"} */ what) => samples.map((each, i) => `${x(i).toFixed(1)},${y(each[what]).toFixed(1)}`).join(" ");
  const last = samples[samples.length - 1];
  return html`<svg class="spark" width=${wide} height=${high} viewBox="0 0 ${wide} ${high}" role="img" aria-label="Reads and writes a second, at most ${Math.round(most)}">
    ${last ? html`<polygon class="reads" points="${x(0).toFixed(1)},${high} ${line("reads")} ${wide},${high}" /><polyline class="writes" points=${line("writes")} />` : ""}</svg>`;
}
