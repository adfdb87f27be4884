// One event as a line of a list, and the shapes of the groups: shape and word tell what colour tells, too.

import { html } from "../vendor/htm-preact.js";
import { clock, short } from "./words.js";

/** @type {Record<string, { mark: string, said: string }>} */
export const GROUPS = {
  lost: { mark: "✕", said: "lost" },
  trouble: { mark: "▲", said: "trouble" },
  view: { mark: "●", said: "members" },
  repair: { mark: "◆", said: "repair" },
  move: { mark: "→", said: "moves" },
  other: { mark: "·", said: "other" },
};

/** @param {{ each: import("./types").StoryEvent, isLast?: boolean }} props */
export function Event({ each, isLast }) {
  const group = GROUPS[each.group] || GROUPS.other;
  return html`<li class="event ${each.group} ${isLast ? "last" : ""}"><time>${clock(each.at)}</time>
    <span class="mark" title=${group.said}><span aria-hidden="true">${group.mark}</span><span class="unseen">${group.said}</span></span>
    <span><strong>${short(each.by)}</strong> ${each.said}${each.reason ? html`: <em>${each.reason}</em>` : ""}
      ${each.meaning ? html`<small class="rule"> ${each.meaning} (${each.rule})</small>` : ""}</span></li>`;
}
