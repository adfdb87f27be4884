// One partition: who holds it now, and what was decided about it, asked of all members.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { Event } from "./events.js";
import { ask, now } from "./store.js";
import { short, span } from "./words.js";

/** @param {{ state: import("./types").State, number: number }} props */
export function Partition({ state, number }) {
  const partitions = /** @type {import("./types").Partitions} */ (state.partitions);
  const row = partitions.rows[number];
  const [found, setFound] = useState(/** @type {any} */ (null));
  const names = row.map((each) => (each < 0 ? "nobody" : partitions.members[each]));
  const held = names.join();
  useEffect(() => {
    let isOld = false;
    setFound(null);
    ask(`/console/partition?number=${number}`).then(
      (its) => { if (!isOld) setFound(its); },
      (error) => { if (!isOld) setFound({ error: error.message, events: [] }); },
    );
    return () => { isOld = true; };
  }, [number, held]);
  const since = partitions.lacking[number];
  return html`<section class="card" aria-label="Partition ${number}"><h2>Partition ${number} <a class="close" href="#/partitions" aria-label="Close">✕</a></h2>
    <dl class="facts"><dt>Owner</dt><dd>${names[0] || "nobody"}</dd><dt>Backups</dt><dd>${names.slice(1).join(", ") || "none"}</dd></dl>
    ${since ? html`<p class="bad-text">▲ lacks a replica for ${span(now() - since)}</p>` : ""}
    <h3>What was decided</h3>
    ${!found ? html`<p class="note">asking all members…</p>` : found.error ? html`<p class="bad-text">${found.error}</p>` : html`
      ${found.silent.length ? html`<p class="note">no answer of ${found.silent.map(short).join(", ")}</p>` : ""}
      ${found.events.length ? html`<ol class="events">${found.events.slice(-30).reverse().map((/** @type {any} */ each) => html`<${Event} key=${each.id} each=${each} />`)}</ol>` : html`<p class="note">nothing that members remember</p>`}`}
  </section>`;
}
