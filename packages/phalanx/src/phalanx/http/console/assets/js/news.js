// What has just happened: one sentence, made by the member, the same in all consoles. It stays for a minute, and is read out.

import { html, useState } from "../vendor/htm-preact.js";
import { now } from "./store.js";
import { brief, clock, span } from "./words.js";

/** @typedef {import("./types").State} State */

const STAYS_MS = 60000;
const MARKS = /** @type {Record<string, string>} */ ({ bad: "✕", warn: "▲", good: "✓" });

/** @param {{ state: State }} props */
export function News({ state }) {
  const [aside, setAside] = useState("");
  if (state.link === "lost")
    return html`<div class="news bad" role="alert">✕ This member does not answer since ${clock(state.lostAt)}: what is shown is as it was then.
      This page asks it again each second; the console of another member perhaps knows more.</div>`;
  const news = state.news;
  const isShown = news && news.key + news.said !== aside && now() - news.at < STAYS_MS;
  return html`<div class="news-place" role="status" aria-live="polite">${
    isShown
      ? html`<div class="news ${news.level}"><span><span aria-hidden="true">${MARKS[news.level] || ""}</span> ${brief(news.said)}.</span>
          <small> ${span(now() - news.at)} ago · <a href="#/story">story</a></small>
          <button class="quiet small" aria-label="Put this aside" onClick=${() => setAside(news.key + news.said)}>✕</button></div>`
      : ""
  }</div>`;
}
