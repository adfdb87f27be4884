// Maps: sizes, rates, settings; one map in detail.

import { html } from "../vendor/htm-preact.js";
import { Look } from "./look.js";
import { SettingsForm } from "./settings.js";
import { bytes, count, counted, duration } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").MapRow} MapRow */

/** @param {number | undefined} value */
function rate(value) {
  return value === undefined ? "–" : value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** @param {{ state: State, rest: string[] }} props */
export function Maps({ state, rest }) {
  const maps = state.maps;
  if (!maps) return html`<p class="loading">Counting…</p>`;
  const chosen = maps.maps.find((each) => each.map === rest[0]);
  return html`<section class="card"><h2>${counted(maps.maps.length, "map")} <small>${maps.more ? `and ${maps.more} more · ` : ""}entries of the whole cluster; the rest is of this member, rates over ${maps.over_s} s</small></h2>
    ${maps.maps.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Maps"><table>
      <thead><tr><th scope="col">Map</th><th scope="col" class="right">Entries</th><th scope="col" class="right">Owned here</th><th scope="col" class="right">Bytes here</th>
        <th scope="col" class="right">Reads/s</th><th scope="col" class="right">Writes/s</th><th scope="col" class="right">p99 read</th><th scope="col" class="right">p99 write</th><th scope="col">Last minutes</th>
        <th scope="col" class="right">Evicted</th><th scope="col" class="right">Expired</th><th scope="col">Backups</th></tr></thead>
      <tbody>${maps.maps.map((each) => html`<${Row} key=${each.map} each=${each} state=${state} isChosen=${each === chosen} />`)}</tbody></table></div>`
      : html`<p class="empty">No map has an entry yet.</p>`}</section>
    ${chosen ? html`<div class="columns"><${Look} key=${chosen.map} state=${state} name=${chosen.map} /><${SettingsForm} key=${chosen.map} state=${state} row=${chosen} /></div>` : ""}`;
}

/** @param {{ each: MapRow, state: State, isChosen: boolean }} props */
function Row({ each, state, isChosen }) {
  const { here, reads, writes, settings } = each;
  const errors = (reads ? reads.errors : 0) + (writes ? writes.errors : 0);
  return html`<tr class=${isChosen ? "chosen" : ""}><th scope="row"><a href="#/maps/${encodeURIComponent(each.map)}" aria-current=${isChosen ? "true" : undefined}>${each.map}</a></th>
    <td class="right">${count(each.entries)}${settings.max_entries ? html` <small>of ${count(settings.max_entries)}</small>` : ""}</td>
    <td class="right">${here ? count(here.entries) : "–"}</td><td class="right">${here ? bytes(here.bytes) : "–"}</td>
    <td class="right">${rate(reads ? reads.per_s : 0)}</td><td class="right">${rate(writes ? writes.per_s : 0)}</td>
    <td class="right">${duration(reads && reads.p99_ms)}</td><td class="right">${duration(writes && writes.p99_ms)}</td>
    <td><${Spark} samples=${state.history[each.map] || []} />${errors ? html`<span class="bad-text"> ✕ ${count(errors)}</span>` : ""}</td>
    <td class="right">${here ? count(here.evicted) : "–"}</td><td class="right">${here ? count(here.expired) : "–"}</td>
    <td>${settings.backups.sync} sync${settings.backups.async ? `, ${settings.backups.async} async` : ""}</td></tr>`;
}

/** Reads as an area, writes as a line: of this member, since the page was opened. @param {{ samples: import("./types").Sample[] }} props */
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
