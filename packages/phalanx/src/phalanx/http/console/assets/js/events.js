// Lines of the story, and the events behind them. The shapes of the groups: shape and word tell what colour tells, too.

import { html } from "../vendor/htm-preact.js";
import { brief, clock, counted, short } from "./words.js";

/** @type {Record<string, { mark: string, said: string }>} */
export const GROUPS = {
  lost: { mark: "✕", said: "lost" },
  trouble: { mark: "▲", said: "trouble" },
  view: { mark: "●", said: "members" },
  repair: { mark: "◆", said: "repair" },
  move: { mark: "→", said: "moves" },
  other: { mark: "·", said: "other" },
};

/** One event, with its reason and its rules. @param {{ each: import("./types").StoryEvent, isLast?: boolean }} props */
export function Event({ each, isLast }) {
  const group = GROUPS[each.group] || GROUPS.other;
  return html`<li class="event ${each.group} ${isLast ? "last" : ""}"><time>${clock(each.at)}</time>
    <span class="mark" title=${group.said}><span aria-hidden="true">${group.mark}</span><span class="unseen">${group.said}</span></span>
    <span><strong>${short(each.by)}</strong> ${brief(each.said)}${each.reason ? html`: <em>${brief(each.reason)}</em>` : ""}
      ${each.meaning ? html`<small class="rule"> ${each.meaning} (${each.rule})</small>` : ""}</span></li>`;
}

/** One change: a sentence; what was decided, and by which rules, on a click. @param {{ line: import("./types").StoryLine, events: import("./types").StoryEvent[], isLast?: boolean }} props */
export function Line({ line, events, isLast }) {
  const group = GROUPS[line.group] || GROUPS.other;
  return html`<li class="line ${line.level} ${isLast ? "last" : ""}"><details><summary><time>${clock(line.at).slice(0, 8)}</time>
    <span class="mark" title=${group.said}><span aria-hidden="true">${group.mark}</span><span class="unseen">${group.said}</span></span>
    <span class="said">${brief(line.said)} <small>${counted(line.events.length, "event")}</small></span></summary>
    ${events.length ? html`<ol class="events">${events.map((each) => html`<${Event} key=${each.id} each=${each} />`)}</ol>` : html`<p class="note">Its events are forgotten here.</p>`}</details></li>`;
}
