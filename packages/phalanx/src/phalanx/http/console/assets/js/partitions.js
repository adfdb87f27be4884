// A cell for each partition: who holds it, what lacks a replica and since when, what is being moved.

import { html, useState } from "../vendor/htm-preact.js";
import { Partition } from "./partition.js";
import { now } from "./store.js";
import { bytes, count, counted, letter, order, short, span } from "./words.js";

/** @typedef {import("./types").State} State */

const BY = [["owner", "owner"], ["backup", "first backup"], ["state", "state"]];

/** @param {{ state: State, rest: string[] }} props */
export function Partitions({ state, rest }) {
  const [by, setBy] = useState("owner");
  const [only, setOnly] = useState("");
  const partitions = state.partitions;
  if (!partitions) return html`<p class="loading">This member is in no cluster.</p>`;
  const chosen = rest[0] && /^\d+$/.test(rest[0]) ? Number(rest[0]) : null;
  const lacking = Object.entries(partitions.lacking);
  const first = lacking.length ? Math.min(...lacking.map(([, at]) => at)) : 0;
  const names = order();
  return html`
    <div class="columns wide-first">
      <section class="card"><h2>${counted(partitions.rows.length, "partition")} <small>${counted(partitions.wanted, "replica")} each${partitions.wanted < partitions.configured ? `, ${partitions.configured} are configured` : ""} · table ver ${partitions.table_version}</small></h2>
        <p class="${lacking.length ? "bad-text strong" : "good-text"}" id="lacking">${!partitions.assigned ? "No partition is assigned yet, because no program has stored anything."
          : lacking.length ? `▲ ${counted(lacking.length, "partition")} lack${lacking.length === 1 ? "s" : ""} a replica, the first for ${span(now() - first)} (since this member learned of it)` : "✓ no partition lacks a replica"}</p>
        <div class="tools"><label>Colours by <select value=${by} onChange=${(/** @type {any} */ e) => setBy(e.target.value)}>${BY.map(([value, said]) => html`<option value=${value}>${said}</option>`)}</select></label>
          <label>Held by <select value=${only} onChange=${(/** @type {any} */ e) => setOnly(e.target.value)}><option value="">anybody</option>${names.map((each) => html`<option key=${each} value=${each}>${short(each)}</option>`)}</select></label></div>
        <${Grid} state=${state} by=${by} only=${only} chosen=${chosen} />
        <ul class="legend">${by === "state" ? html`<li><i class="swatch state-good"></i> complete</li>` : names.map((each, i) => html`<li key=${each}><i class="swatch fill-${i % 8}">${letter(i)}</i> ${short(each)}</li>`)}
          <li><i class="swatch lacking">!</i> lacks a replica</li><li><i class="swatch moving">↷</i> being moved</li></ul>
      </section>
      <div class="side">
        ${chosen !== null && chosen < partitions.rows.length ? html`<${Partition} state=${state} number=${chosen} />` : ""}
        <${Moves} state=${state} />
      </div>
    </div>`;
}

/** @param {any} props */
function Grid({ state, by, only, chosen }) {
  const partitions = /** @type {import("./types").Partitions} */ (state.partitions);
  const names = order();
  const moving = new Set((state.moves ? state.moves.under_way : []).map((/** @type {any} */ each) => each.partition));
  const places = partitions.members.map((each) => names.indexOf(each));
  const [at, setAt] = useState(0);
  const go = (/** @type {KeyboardEvent} */ event) => {
    const grid = /** @type {HTMLElement} */ (event.currentTarget);
    const cells = /** @type {HTMLElement[]} */ ([...grid.children]);
    const wide = cells.filter((each) => each.offsetTop === cells[0].offsetTop).length || 1;
    const step = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide, Home: -cells.length, End: cells.length })[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.min(Math.max(at + step, 0), cells.length - 1);
    setAt(next);
    cells[next].focus();
  };
  return html`<div class="cells" role="group" aria-label="Partitions; arrow keys go from one to the next" onKeyDown=${go}>${partitions.rows.map((row, i) => {
    const since = partitions.lacking[i], isMoving = moving.has(i);
    const shown = by === "backup" ? row[1] : row[0];
    const place = shown === undefined || shown < 0 ? -1 : places[shown];
    const isOff = only && !row.some((each) => each >= 0 && partitions.members[each] === only);
    const kind = by === "state" ? "state-good" : place < 0 ? "nobody" : `fill-${place % 8}`;
    const names_ = row.map((each) => (each < 0 ? "nobody" : short(partitions.members[each])));
    const said = `Partition ${i}: owner ${names_[0] || "nobody"}, backups ${names_.slice(1).join(", ") || "none"}${since ? `, lacks a replica for ${span(now() - since)}` : ""}${isMoving ? ", being moved" : ""}`;
    return html`<a key=${i} href="#/partitions/${i}" tabindex=${i === at ? 0 : -1} title=${said} aria-label=${said} onFocus=${() => setAt(i)}
      aria-current=${i === chosen ? "true" : undefined}
      class="cell ${kind} ${since ? "lacking" : ""} ${isMoving ? "moving" : ""} ${isOff ? "off" : ""} ${state.moved[i] ? "moved" : ""}">${since ? "!" : isMoving ? "↷" : by === "state" ? "" : place < 0 ? "–" : letter(place)}</a>`;
  })}</div>`;
}

/** @param {{ state: State }} props */
function Moves({ state }) {
  const moves = state.moves;
  if (!moves || !moves.known) return html`<section class="card"><h2>Moves</h2><p>The master does not answer: only it knows what is moved.</p></section>`;
  // Both are asked for at once, and come one after the other.
  const isRest = moves.at_rest && !Object.keys(state.partitions ? state.partitions.lacking : {}).length;
  const part = moves.planned ? (moves.arrived || 0) / moves.planned : 1;
  return html`<section class="card"><h2>Moves</h2>
    <p>${isRest ? html`<span class="good-text">✓ nothing is moved</span>` : moves.at_rest ? html`<span class="warn-text">↷ copies are about to begin</span>` : html`<span class="warn-text">↷ ${count(moves.arrived)} of ${counted(moves.planned || 0, "partition")} in place</span>`}
      ${moves.took_ms ? ` · ${moves.at_rest ? "the last rebalancing took" : "for"} ${span(moves.took_ms)}` : ""}${!moves.at_rest && moves.left_ms ? ` · about ${span(moves.left_ms)} left` : ""}</p>
    ${moves.at_rest ? "" : html`<span class="meter wide" role="img" aria-label="${Math.round(part * 100)} percent in place"><span style=${{ width: `${part * 100}%` }}></span></span>`}
    ${moves.copied_entries ? html`<p class="note">${counted(moves.copied_entries, "entry", "entries")} copied, ${bytes(moves.copied_bytes)}</p>` : ""}
    ${(moves.leaving || []).map((each) => html`<p key=${each.address}>${short(each.address)} is leaving: ${counted(each.replicas, "replica")} to hand over</p>`)}
    ${(moves.kept || []).map((each) => html`<p key=${each.address} class="warn-text">${short(each.address)} keeps ${counted(each.entries, "entry", "entries")} to merge</p>`)}
    <ul class="plain moves">${moves.under_way.slice(0, 40).map((each) => html`<li key=${each.partition + each.kind}><a href="#/partitions/${each.partition}">${each.partition}</a> ${each.kind.toLowerCase().replace("_", " ")}
      ${each.source ? ` ${short(each.source)}` : ""} → ${each.destination ? short(each.destination) : "–"} <small>${each.phase}, ${span(each.age_ms)}</small></li>`)}</ul></section>`;
}
