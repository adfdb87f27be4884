// The story: events with their reasons, filtered, on a time line that can be scrubbed.

import { html, useState } from "../vendor/htm-preact.js";
import { Event, GROUPS, Line } from "./events.js";
import { now } from "./store.js";
import { TimeLine } from "./time_line.js";
import { clock, order, short, span } from "./words.js";

/** @typedef {import("./types").State} State */

const SPANS = [[30000, "30 s"], [120000, "2 min"], [600000, "10 min"], [3600000, "1 h"], [0, "all"]];
const MOST_SHOWN = 200;

/** @param {{ state: State, rest: string[] }} props */
export function Story({ state }) {
  const [by, setBy] = useState("");
  const [partition, setPartition] = useState("");
  const [off, setOff] = useState(/** @type {string[]} */ (["move", "other"]));
  const [wide, setWide] = useState(120000);
  const [till, setTill] = useState(/** @type {number | null} */ (null));
  const present = now();
  const end = till === null ? present : till;
  const oldest = state.story.length ? state.story[0].at : present - 1000;
  const from = wide ? end - wide : Math.min(oldest, end - 1000);
  const begin = Math.min(oldest, present - (wide || 60000));
  const wanted = state.story.filter((each) => (!by || each.by === by || each.about.includes(by))
    && (partition === "" ? !off.includes(each.group) : each.partition === Number(partition)));
  const inside = wanted.filter((each) => each.at >= from && each.at <= end);
  const toggle = (/** @type {string} */ group) => setOff(off.includes(group) ? off.filter((each) => each !== group) : [...off, group]);
  const items = itemsOf(state, inside, from, end, by, off, partition !== "");
  const most = state.partitions ? state.partitions.rows.length - 1 : 0;
  const jump = (/** @type {number} */ way) => {
    const others = wanted.filter((each) => (way < 0 ? each.at < end - 1 : each.at > end + 1));
    const next = way < 0 ? others[others.length - 1] : others[0];
    setTill(next ? next.at : way < 0 ? end : null);
  };
  return html`<section class="card">
    <h2>Story <small>${till === null ? "live" : `as of ${clock(end)}, ${span(present - end)} ago`}</small></h2>
    <div class="tools">
      <label>Member <select value=${by} onChange=${(/** @type {any} */ e) => setBy(e.target.value)}><option value="">all</option>${order().map((each) => html`<option key=${each} value=${each}>${short(each)}</option>`)}</select></label>
      <label>Partition <input type="number" min="0" max=${most} value=${partition} placeholder="all" onInput=${(/** @type {any} */ e) => setPartition(e.target.value)} /></label>
      <fieldset><legend class="unseen">Kinds</legend>${Object.entries(GROUPS).map(([group, { mark, said }]) => html`<label key=${group} class="chip ${group}">
        <input type="checkbox" checked=${!off.includes(group)} onChange=${() => toggle(group)} /><span aria-hidden="true">${mark}</span> ${said}</label>`)}</fieldset>
      <fieldset class="spans"><legend class="unseen">How much time</legend>${SPANS.map(([ms, said]) => html`<label key=${ms} class="chip"><input type="radio" name="span" checked=${wide === ms} onChange=${() => setWide(Number(ms))} />${said}</label>`)}</fieldset>
    </div>
    <${TimeLine} state=${state} events=${inside} from=${from} end=${end} only=${by} choose=${setTill} />
    <div class="scrub"><button class="quiet" onClick=${() => jump(-1)} aria-label="To the event before">◂</button>
      <input type="range" aria-label="Time up to which the story is shown" min=${begin} max=${present} step="50" value=${end}
        aria-valuetext=${till === null ? "now" : `${span(present - end)} ago`} onInput=${(/** @type {any} */ e) => setTill(Number(e.target.value))} />
      <button class="quiet" onClick=${() => jump(1)} aria-label="To the event after">▸</button>
      <button class="quiet" disabled=${till === null} onClick=${() => setTill(null)}>Live</button></div>
    <p class="note">${clock(from).slice(0, 8)} to ${clock(end).slice(0, 8)}${state.forgotten ? "; older events are forgotten" : ""}. A line is one change: press it for the events, their reasons and rules. Of ${state.hello ? short(state.hello.this) : "this member"} all that it recorded last is here, of others what they told since a console was opened here${partition !== "" ? html`. <a href="#/partitions/${partition}">Ask all members about partition ${partition}</a>` : ""}.</p>
    ${items.length ? html`<ol class="events">${items.slice(-MOST_SHOWN).reverse().map((each, i) => ("said" in each && "events" in each)
      ? html`<${Line} key=${each.key} line=${each} events=${state.story.filter((one) => each.events.includes(one.id))} isLast=${i === 0 && till !== null} />`
      : html`<${Event} key=${each.id} each=${each} isLast=${i === 0 && till !== null} />`)}</ol>`
      : html`<p class="empty">Nothing happened in this time. That is good news.</p>`}
  </section>`;
}

/**
 * Return what the list shows, oldest first: lines, and events that are in none; of a partition its events alone.
 * @param {State} state @param {import("./types").StoryEvent[]} inside @param {number} from @param {number} end @param {string} by @param {string[]} off @param {boolean} isOfPartition
 * @returns {(import("./types").StoryLine | import("./types").StoryEvent)[]}
 */
function itemsOf(state, inside, from, end, by, off, isOfPartition) {
  if (isOfPartition) return inside;
  const known = new Set(state.lines.flatMap((each) => each.events));
  const lines = state.lines.filter((each) => each.at >= from && each.at <= end && !off.includes(each.group) && (!by || each.about.includes(by)));
  return [...lines, ...inside.filter((each) => !known.has(each.id))].sort((a, b) => a.at - b.at);
}
