// "What if these links were cut": asked of the member, which answers as `phalanx what-if` does.

import { html, useState } from "../vendor/htm-preact.js";
import { same } from "./links.js";
import { ask } from "./store.js";
import { capital, counted, short } from "./words.js";

/** @param {any} props */
export function WhatIf({ chosen, cuts, setCuts, found, setFound }) {
  const [problem, setProblem] = useState("");
  const isCut = chosen && cuts.some((/** @type {string[]} */ cut) => same(cut, chosen));
  const look = async (/** @type {string[][]} */ next) => {
    setCuts(next);
    setProblem("");
    if (!next.length) return setFound(null);
    try {
      setFound(await ask(`/console/what-if?${next.map(([a, b]) => `cut=${encodeURIComponent(`${a}-${b}`)}`).join("&")}`));
    } catch (error) {
      setFound(null);
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const press = () => look(isCut ? cuts.filter((/** @type {string[]} */ cut) => !same(cut, chosen)) : [...cuts, chosen]);
  return html`<div class="what-if">
    ${chosen ? html`<button onClick=${press}>${isCut ? "Put it together again" : cuts.length ? "And if it were cut, too?" : "What if it were cut?"}</button>` : ""}
    ${cuts.length ? html` <button class="quiet" onClick=${() => look([])}>Clear</button>
      <p>Assumed cut: ${cuts.map((/** @type {string[]} */ [a, b]) => `${short(a)} ✂ ${short(b)}`).join(", ")}. Nothing is changed.</p>` : ""}
    <div aria-live="polite">${problem ? html`<p class="bad-text">${problem}</p>` : ""}
    ${found ? html`<dl class="facts"><dt>Would stay</dt><dd class="good-text">✓ ${found.kept.map(short).join(", ")}</dd>
      <dt>Would be removed</dt><dd class=${found.removed.length ? "bad-text" : ""}>${found.removed.length ? `✕ ${found.removed.map(short).join(", ")}` : "nobody"}</dd>
      <dt>Why</dt><dd>${capital(found.because)}.</dd>
      <dt>Data</dt><dd class=${found.lost_partitions ? "bad-text" : ""}>${found.lost_partitions ? `${counted(found.lost_partitions, "partition")} would be lost, unless they are moved before` : "no partition would be lost"}</dd></dl>` : ""}</div>
  </div>`;
}
