// "What if these links were cut": asked of the member, which answers as `phalanx what-if` does.

import { html, useState } from "../vendor/htm-preact.js";
import { same } from "./links.js";
import { ask } from "./store.js";
import { brief, capital, counted, short } from "./words.js";

/** What would become of a member, in words; empty: it would stay with the master.
 * @param {import("./types").WhatIf | null} found @param {string} address */
export function fateOf(found, address) {
  if (!found || !found.removed.includes(address)) return "";
  return found.sides.slice(1).some((side) => side.members.includes(address)) ? "would go on apart" : "would be removed";
}

/** @param {import("./types").CutSide} side @param {boolean} isFullCut */
function dataOf(side, isFullCut) {
  const refused = side.refuses.map((each) => `${each.map === "*" ? "all other maps" : each.map}: ${each.needs}`);
  const lost = side.lost_partitions ? `${counted(side.lost_partitions, "partition")} would ${isFullCut ? "begin empty" : "be lost, unless they are moved before"}` : "no partition would be lost";
  return [lost, ...(refused.length ? [`calls are refused to ${refused.join("; ")}`] : [])].join("; ");
}

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
    ${found ? html`${found.is_full_cut ? html`<p class="bad-text strong">${brief(found.because)}.</p>` : ""}
      ${found.sides.map((/** @type {import("./types").CutSide} */ side) => html`<dl key=${side.master} class="facts">
        <dt>Would ${!found.is_full_cut ? "stay" : side.members.length > 1 ? "go on together" : "go on alone"}</dt><dd class="good-text">✓ ${side.members.map(short).join(", ")}</dd>
        ${side.waiting.length || !found.is_full_cut ? html`<dt>Would be removed</dt><dd class=${side.waiting.length ? "bad-text" : ""}>${side.waiting.length ? `✕ ${side.waiting.map(short).join(", ")}` : "nobody"}</dd>
          <dt>Why</dt><dd>${capital(brief(side.because))}.</dd>` : ""}
        <dt>Data</dt><dd class=${side.lost_partitions || side.refuses.length ? "bad-text" : ""}>${capital(dataOf(side, found.is_full_cut))}.</dd></dl>`)}
      ${found.undecided.length ? html`<p class="warn-text">No side was found in time for ${found.undecided.map(short).join(", ")}.</p>` : ""}
      ${found.meeting ? html`<p>When the links are whole again: ${brief(found.meeting)}.</p>` : ""}` : ""}</div>
  </div>`;
}
