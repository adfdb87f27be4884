// The time line: a lane for each member, a mark for each event; what belongs to a crash stands out.

import { html, useRef } from "../vendor/htm-preact.js";
import { GROUPS } from "./events.js";
import { useNarrow } from "./narrow.js";
import { brief, clock, order, short } from "./words.js";

const LANE = 26;
const MOST_LANES = 16;
const MOST_MARKS = 600;

/** @param {{ state: import("./types").State, events: import("./types").StoryEvent[], from: number, end: number, only: string, choose: (at: number) => void }} props */
export function TimeLine({ state, events, from, end, choose }) {
  const isNarrow = useNarrow();
  const wide = isNarrow ? 360 : 1000, left = isNarrow ? 62 : 96, right = 12;
  const place = useRef(/** @type {SVGSVGElement | null} */ (null));
  const by = new Set(events.map((each) => each.by));
  const lanes = order().concat([...by].filter((each) => !order().includes(each))).slice(0, MOST_LANES);
  const high = lanes.length * LANE + 28;
  const x = (/** @type {number} */ at) => left + ((at - from) / Math.max(end - from, 1)) * (wide - left - right);
  const crashes = steps(events);
  const press = (/** @type {MouseEvent} */ event) => {
    if (!place.current) return;
    const box = place.current.getBoundingClientRect();
    const part = ((event.clientX - box.left) / box.width * wide - left) / (wide - left - right);
    if (part >= 0 && part <= 1) choose(from + part * (end - from));
  };
  const ticks = (isNarrow ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((part) => from + part * (end - from));
  return html`<svg ref=${place} class="time-line" viewBox="0 0 ${wide} ${high}" role="img" onClick=${press}
      aria-label="Time line of ${events.length} events from ${clock(from)} to ${clock(end)}; the list below says the same">
    ${ticks.map((at, i) => html`<g key=${i}><line class="tick" x1=${x(at)} x2=${x(at)} y1="4" y2=${high - 22} /><text class="tick-text" x=${x(at)} y=${high - 6}
      text-anchor=${i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle"}>${clock(at).slice(0, 8)}</text></g>`)}
    ${crashes.map((each, i) => html`<g key=${`crash${i}`} class="step-${each.kind}"><rect x=${x(each.from)} width=${Math.max(x(each.to) - x(each.from), 2)} y="4" height=${high - 28} /></g>`)}
    ${lanes.map((each, i) => html`<g key=${each}><line class="lane" x1=${left} x2=${wide - right} y1=${i * LANE + 18} y2=${i * LANE + 18} />
      <text class="lane-name ${state.gone[each] ? "gone" : ""}" x=${left - 12} y=${i * LANE + 22}>${short(each)}</text></g>`)}
    ${events.slice(-MOST_MARKS).map((each) => {
      const lane = lanes.indexOf(each.by);
      return lane < 0 ? "" : html`<text key=${each.id} class="event-mark ${each.group}" x=${x(each.at)} y=${lane * LANE + 23}><title>${clock(each.at)} ${short(each.by)} ${brief(each.said)}</title>${(GROUPS[each.group] || GROUPS.other).mark}</text>`;
    })}
  </svg>
  ${crashes.length ? html`<ul class="legend"><li><i class="swatch step-suspicion"></i> suspicion to the list without the member</li><li><i class="swatch step-repair"></i> list to all replicas again</li></ul>` : ""}`;
}

/** Return the parts of time between a suspicion and the list without the suspect, and from there to the repair. @param {import("./types").StoryEvent[]} events */
function steps(events) {
  /** @type {{ kind: string, from: number, to: number }[]} */
  const found = [];
  let suspected = 0, removed = 0;
  for (const each of events) {
    if (each.kind === "MemberSuspected" && !suspected) suspected = each.at;
    if (each.kind === "MemberRemoved" || each.kind === "ClaimEnded") {
      if (suspected) found.push({ kind: "suspicion", from: suspected, to: each.at });
      suspected = 0;
      removed = removed || each.at;
    }
    if (each.kind === "FullyReplicated" && removed) {
      found.push({ kind: "repair", from: removed, to: each.at });
      removed = 0;
    }
  }
  return found;
}
