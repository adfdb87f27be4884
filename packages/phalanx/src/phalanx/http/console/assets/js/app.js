// The frame of the page: what is always in view, and which of the five views is shown.

import { html, render, useEffect, useState } from "../vendor/htm-preact.js";
import { Cluster } from "./cluster.js";
import { Maps } from "./maps.js";
import { News } from "./news.js";
import { Partitions } from "./partitions.js";
import { Safety } from "./safety.js";
import { begin, now, useStore } from "./store.js";
import { Story } from "./story.js";
import { counted, span } from "./words.js";

/** @typedef {import("./types").State} State */

const VIEWS = [
  { id: "cluster", name: "Cluster", view: Cluster, icon: "◉" },
  { id: "partitions", name: "Partitions", view: Partitions, icon: "▦" },
  { id: "maps", name: "Maps", view: Maps, icon: "☰" },
  { id: "story", name: "Story", view: Story, icon: "↦" },
  { id: "safety", name: "Safety", view: Safety, icon: "⚑" },
];
const THEMES = ["auto", "light", "dark"];

/** Return the parts of the address behind #: the view, and what is shown in it. */
function useRoute() {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [route, set] = useState(read);
  useEffect(() => {
    const listener = () => set(read());
    addEventListener("hashchange", listener);
    return () => removeEventListener("hashchange", listener);
  }, []);
  return route;
}

/** Return the state of the cluster in a few words. @param {State} state */
export function verdict(state) {
  const { cluster, partitions, moves, safety } = state;
  if (state.link === "lost") return { level: "bad", mark: "✕", said: `no word of this member for ${span(now() - state.lostAt)}` };
  if (!cluster) return { level: "wait", mark: "…", said: "asking this member" };
  if (!cluster.master) return { level: "bad", mark: "✕", said: "this member is in no cluster" };
  if (cluster.restart_wait) {
    const { members, clusters } = cluster.restart_wait;
    return { level: "bad", mark: "…", said: `${clusters.length ? `has the data of ${clusters.length} clusters` : `waits for ${counted(members.length, "member")}`}: nothing is served` };
  }
  const lost = safety && safety.losses ? safety.losses.unacknowledged_losses.length : 0;
  if (lost) return { level: "bad", mark: "✕", said: `${counted(lost, "loss", "losses")} that no operator has acknowledged` };
  if (cluster.suspicions.length) {
    const whom = new Set(cluster.suspicions.map((each) => each.of));
    return { level: "bad", mark: "▲", said: `${counted(whom.size, "member")} suspected` };
  }
  const lacking = partitions ? Object.keys(partitions.lacking).length : 0;
  if (lacking) return { level: "warn", mark: "▲", said: `${counted(lacking, "partition")} lack${lacking === 1 ? "s" : ""} a replica` };
  if (moves && moves.known && !moves.at_rest) return { level: "warn", mark: "↷", said: "whole, and rebalancing" };
  if (partitions && partitions.assigned && partitions.wanted < partitions.configured)
    return { level: "warn", mark: "▲", said: `${partitions.wanted} of ${counted(partitions.configured, "replica")}: start another member` };
  return { level: "good", mark: "✓", said: "whole: every replica is in its place" };
}

function Theme() {
  const [theme, set] = useState(() => localStorage.getItem("theme") || "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const mark = { auto: "◐", light: "☀", dark: "☾" }[theme] || "◐";
  return html`<button class="quiet" onClick=${() => set(next)} title="Colours: ${theme}. Press for ${next}."
    aria-label="Colours: ${theme}. Press for ${next}.">${mark}</button>`;
}

function App() {
  const state = useStore();
  const [id, ...rest] = useRoute();
  const shown = VIEWS.find((each) => each.id === id) || VIEWS[0];
  const { level, mark, said } = verdict(state);
  const hello = state.hello;
  useEffect(() => {
    const listener = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
      const view = VIEWS[Number(event.key) - 1];
      if (view) location.hash = `#/${view.id}`;
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  useEffect(() => scrollTo(0, 0), [shown]);
  document.title = `${level === "good" ? "" : mark + " "}${hello ? hello.cluster : "Phalanx"} · ${shown.name}`;
  return html`
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); const main = document.getElementById("main"); if (main) main.focus(); }}>Skip to the view</a>
    <header>
      <div class="brand"><img src="/console/icon.svg" alt="" width="28" height="28" /><div>
        <strong>${hello ? hello.cluster : "Phalanx"}</strong>
        <small>${hello ? `as ${hello.this} has it · phalanx ${hello.release}` : "console"}</small></div></div>
      <div class="verdict ${level}" id="verdict"><span aria-hidden="true">${mark}</span> ${said}</div>
      <nav aria-label="Views">${VIEWS.map((each, i) => html`<a key=${each.id} href="#/${each.id}"
        aria-current=${each === shown ? "page" : undefined} title="${each.name} (key ${i + 1})"><span aria-hidden="true">${each.icon}</span>${each.name}</a>`)}</nav>
      <${Theme} />
    </header>
    <${News} state=${state} />
    <main id="main" tabindex="-1" class=${state.link === "lost" ? "stale" : ""}>
      <h1 class="unseen">${shown.name}</h1>
      ${state.cluster ? html`<${shown.view} state=${state} rest=${rest} />` : html`<p class="loading">Asking this member…</p>`}
    </main>`;
}

const root = document.getElementById("app");
if (root) {
  root.textContent = "";
  render(html`<${App} />`, root);
  begin();
}
