// What has just happened, in one line that stays for a while, and is read out.

import { html, useState } from "../vendor/htm-preact.js";
import { now } from "./store.js";
import { clock, short, span } from "./words.js";

/** @typedef {import("./types").State} State */

const STAYS_MS = 60000;
const WORTH = /^(MemberSuspected|MemberRemoved|MemberAdmitted|Left|LeaveStarted|LeaveWaits|ClaimStarted|ClaimEnded|PartitionsRepaired|FullyReplicated|MajorityChanged|Ejected|MemoryFull|KeptDropped|OtherSideFound|ResolutionDecided|LinksReported|WokeUp)$/;

/** @param {{ state: State }} props */
export function News({ state }) {
  const [seen, setSeen] = useState("");
  if (state.link === "lost")
    return html`<div class="news bad" role="alert">✕ This member does not answer since ${clock(state.lostAt)}: what is shown is as it was then.
      It is asked again each second; another member's console may know more.</div>`;
  const since = now() - STAYS_MS;
  const recent = state.story.filter((each) => each.at > since && WORTH.test(each.kind));
  const last = recent[recent.length - 1];
  const gone = Object.entries(state.gone).filter(([, at]) => at > since).map(([address]) => short(address));
  const isShown = last && last.id !== seen;
  return html`<div class="news-place" role="status" aria-live="polite">${
    isShown || gone.length
      ? html`<div class="news ${last && (last.group === "lost" || last.group === "trouble") ? "warn" : "info"}">
          ${gone.length ? html`<strong>Gone from the member list: ${gone.join(", ")}.</strong> ` : ""}
          ${isShown ? html`<span>${short(last.by)} ${last.said}${last.reason ? `: ${last.reason}` : ""}</span>
            <small> ${span(now() - last.at)} ago · <a href="#/story">story</a></small>
            <button class="quiet small" aria-label="Put this aside" onClick=${() => setSeen(last.id)}>✕</button>` : ""}
        </div>`
      : ""
  }</div>`;
}


