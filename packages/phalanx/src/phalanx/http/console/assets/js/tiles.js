// The cluster in six figures, each with its last ten minutes, which the members keep.

import { html } from "../vendor/htm-preact.js";
import { bytes, clock, count, counted, duration, rate, short } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {(number | null)[]} Row */

const SLOTS = 200; // ten minutes
const WIDE = SLOTS - 1;
const HIGH = 46;

/** @param {{ state: State }} props */
export function Tiles({ state }) {
  const { activity, cluster, moves } = state;
  if (!activity || !cluster) return html`<div class="tiles" aria-busy="true"></div>`;
  const members = cluster.members;
  const sum = (/** @type {"memory_used" | "memory_limit" | "clients"} */ what) =>
    members.reduce((all, each) => all + (each[what] || 0), 0);
  const calls = activity.reads.map((each, i) => (each === null ? null : each + (activity.writes[i] || 0)));
  const limit = sum("memory_limit");
  const under = moves && moves.known ? moves.under_way.length : null;
  const left = moves && moves.known && !moves.at_rest ? moves.remaining || 0 : 0;
  const errors = last(activity.errors) || 0;
  const said = counts(activity, members.length);
  return html`<section class="tiles" aria-label="The cluster in the last ten minutes">
    <${Tile} state=${state} name="Calls a second" row=${calls} show=${rate} more=${html`${rate(last(activity.reads))} reads, ${rate(last(activity.writes))} writes${
      errors ? html`, <span class="bad-text">${rate(errors)} ${errors === 1 ? "error" : "errors"}</span>` : ""}`} note=${said.calls} />
    <${Tile} state=${state} name="99th percentile" row=${activity.p99_ms} show=${duration} more=${last(activity.p99_ms) === null ? "no calls now" : "99 of 100 calls are no slower"} note=${said.calls} />
    <${Tile} state=${state} name="Entries" row=${activity.entries} show=${count} more="without backups" note=${said.all} />
    <${Tile} state=${state} name="Memory" row=${activity.memory} value=${sum("memory_used")} show=${bytes} more=${limit ? `of ${bytes(limit)}, ${Math.round((sum("memory_used") / limit) * 100)} %` : "no limit"} note=${said.all} />
    <${Tile} state=${state} name="Clients" row=${activity.clients} show=${(/** @type {number | null} */ value) => count(value)} more="connections, of all members" note=${said.all} />
    <${Tile} state=${state} name="Moves" row=${activity.moves} value=${left} show=${(/** @type {number | null} */ value) => (under === null ? "–" : count(value))}
      more=${under === null ? "the master does not answer" : left ? `${counted(left, "partition")} to move, ${under} under way` : "every replica is in its place"} note="" peak=${(/** @type {number} */ most) => `${rate(most)}/s`} />
  </section>`;
}

/** Say whose part is missing. @param {import("./types").Activity} activity @param {number} members */
function counts(activity, members) {
  const silent = !activity.silent.length ? "" : activity.silent.length === members ? "no member tells" : `without ${activity.silent.map(short).join(", ")}`;
  const uncounted = activity.uncounted.map(short).join(", ");
  return { all: silent, calls: [silent, uncounted ? `${uncounted} count no calls: no HTTP port` : ""].filter(Boolean).join("; ") };
}

/** Return the last figure that is known. @param {Row} row */
function last(row) {
  return row.length ? row[row.length - 1] : null;
}

/** @param {{ state: State, name: string, row: Row, show: (value: number | null) => any, value?: number, more: any, note: string, peak?: (most: number) => string }} props */
function Tile({ state, name, row, show, value, more, note, peak }) {
  const known = /** @type {number[]} */ ([...row, peak ? null : value].filter((each) => each !== null && each !== undefined));
  const most = known.length ? Math.max(...known) : 0;
  const highest = !known.length ? "–" : peak ? peak(most) : show(most);
  return html`<article class="tile"><h3>${name}</h3><p class="figure">${show(value === undefined ? last(row) : value)}</p><p class="note">${more}</p>
    <${Chart} state=${state} row=${row} most=${most} said="${name} in the last ten minutes: at most ${highest}" />
    <p class="ends"><span>−10 min</span><span class="most">most ${highest}</span><span>now</span></p>
    ${note ? html`<p class="note warn-text">${note}</p>` : ""}</article>`;
}

/** A line over an area, from the left ten minutes ago to the right now; a crash is a red line. @param {{ state: State, row: Row, most: number, said: string }} props */
function Chart({ state, row, most, said }) {
  const activity = /** @type {import("./types").Activity} */ (state.activity);
  const x = (/** @type {number} */ i) => WIDE - (row.length - 1 - i);
  const y = (/** @type {number} */ value) => HIGH - 2 - (most ? (value / most) * (HIGH - 6) : 0);
  /** @type {string[][]} */
  const runs = [];
  row.forEach((value, i) => {
    if (value === null) return;
    const isNext = i > 0 && row[i - 1] !== null;
    if (!isNext) runs.push([]);
    runs[runs.length - 1].push(`${x(i)},${y(value).toFixed(1)}`);
  });
  const crashes = state.lines.filter((each) => each.level === "bad").map((each) => ({ each, at: WIDE - (activity.end - each.at) / activity.every_ms }));
  return html`<svg class="chart" viewBox="0 0 ${WIDE} ${HIGH}" preserveAspectRatio="none" role="img" aria-label=${said}>
    ${runs.map((points, i) => html`<g key=${i}><polygon points="${points[0].split(",")[0]},${HIGH} ${points.join(" ")} ${points[points.length - 1].split(",")[0]},${HIGH}" />
      <polyline points=${points.length > 1 ? points.join(" ") : `${points[0]} ${points[0]}`} /></g>`)}
    ${crashes.filter((one) => one.at > 0).map((one) => html`<line key=${one.each.key} class="crash" x1=${Math.min(one.at, WIDE)} x2=${Math.min(one.at, WIDE)} y1="0" y2=${HIGH}><title>${clock(one.each.at)} ${one.each.said}</title></line>`)}
  </svg>`;
}
