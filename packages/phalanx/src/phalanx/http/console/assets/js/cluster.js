// Members as a ring with the links between them; what each member has; what would be if links were cut.

import { html, useState } from "../vendor/htm-preact.js";
import { opinion } from "./links.js";
import { Ring } from "./ring.js";
import { now } from "./store.js";
import { Tiles } from "./tiles.js";
import { brief, bytes, capital, count, counted, duration, letter, order, rate, short, span } from "./words.js";
import { WhatIf } from "./what_if.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").Member} Member */

/** @param {{ state: State, rest: string[] }} props */
export function Cluster({ state }) {
  const cluster = /** @type {import("./types").Cluster} */ (state.cluster);
  const [chosen, choose] = useState(/** @type {string[] | null} */ (null));
  const [cuts, setCuts] = useState(/** @type {string[][]} */ ([]));
  const [found, setFound] = useState(/** @type {import("./types").WhatIf | null} */ (null));
  return html`
    ${cluster.restart_wait ? html`<${Awaited} wait=${cluster.restart_wait} />` : ""}
    <${Tiles} state=${state} />
    <div class="columns">
      <section class="card ring-card" aria-labelledby="ring-title">
        <h2 id="ring-title">${counted(cluster.members.length, "member")} <small>member list ${cluster.view_version} · table ver ${cluster.table_version}</small></h2>
        <${Ring} state=${state} chosen=${chosen} choose=${choose} cuts=${cuts} found=${found} />
        <${Legend} />
      </section>
      <section class="card" aria-labelledby="link-title">
        <h2 id="link-title">${chosen ? `Link ${short(chosen[0])} – ${short(chosen[1])}` : "Links"}</h2>
        ${chosen ? html`<${Link} state=${state} pair=${chosen} />` : html`<p>Choose a link of the ring: what its two ends hear of each
          other, and what would happen if it were cut.</p>`}
        ${cluster.suspicions.length ? html`<ul class="plain">${cluster.suspicions.map((each) => html`<li key=${each.by + each.of} class="bad-text">
          ▲ ${short(each.by)} suspects ${short(each.of)}${each.reason ? `: ${brief(each.reason)}` : ""}</li>`)}</ul>` : ""}
        <${WhatIf} chosen=${chosen} cuts=${cuts} setCuts=${setCuts} found=${found} setFound=${setFound} />
      </section>
    </div>
    <${Members} state=${state} />
    ${cluster.members.some((each) => each.disk) ? html`<${Disks} cluster=${cluster} />` : ""}`;
}

/** The members that a cluster waits for which was switched off. @param {{ wait: import("./types").RestartWait }} props */
function Awaited({ wait }) {
  if (wait.clusters.length) return html`<section class="card" aria-labelledby="awaited-title"><h2 id="awaited-title">Has the data of ${wait.clusters.length} clusters <small>nothing is served until all but those of one are stopped</small></h2>
    <ul class="plain">${wait.clusters.map((each) => html`<li key=${each.join()} class="warn-text">… ${each.join(", ")}</li>`)}</ul></section>`;
  return html`<section class="card" aria-labelledby="awaited-title"><h2 id="awaited-title">Waits for ${counted(wait.members.length, "member")} <small>nothing is served until then</small></h2>
    <ul class="plain">${wait.members.map((each) => html`<li key=${each} class="warn-text">… ${each}${wait.last_seen ? `, last seen ${span(now() - wait.last_seen)} ago` : ""}: start it with its folder</li>`)}</ul>
    <p class="note">${capital(wait.said)}.</p></section>`;
}

function Legend() {
  return html`<ul class="legend" aria-label="What is drawn">
    <li><svg width="34" height="10" aria-hidden="true"><line x1="1" x2="33" y1="5" y2="5" class="link hears" /></svg> both hear each other</li>
    <li><svg width="34" height="10" aria-hidden="true"><line x1="1" x2="33" y1="5" y2="5" class="link unknown" /></svg> one end does not answer</li>
    <li><svg width="34" height="10" aria-hidden="true"><line x1="1" x2="33" y1="5" y2="5" class="link late" /></svg> heartbeats late</li>
    <li><svg width="34" height="12" aria-hidden="true"><line x1="1" x2="24" y1="6" y2="6" class="link suspects" /><path d="M22 1 L32 6 L22 11 z" class="arrow" /></svg> suspects (one way)</li>
    <li><svg width="34" height="10" aria-hidden="true"><line x1="1" x2="33" y1="5" y2="5" class="link cut" /></svg> cut, as assumed</li>
    <li><svg width="20" height="20" viewBox="-10 -10 20 20" aria-hidden="true" class="dot"><circle r="8" class="load-track" /><circle r="8" class="load" stroke-dasharray="33 50" transform="rotate(-90)" /></svg> how many replicas it holds</li>
  </ul>`;
}

/** @param {{ state: State, pair: string[] }} props */
function Link({ state, pair }) {
  const words = {
    hears: "hears", late: "waits for a heartbeat of", suspects: "suspects", unknown: "does not say what it hears of",
  };
  return html`<ul class="plain">${[pair, [pair[1], pair[0]]].map(([by, of]) => {
    const its = opinion(state, by, of);
    return html`<li key=${by} class=${its === "suspects" ? "bad-text" : ""}>${its === "suspects" ? "▲ " : its === "hears" ? "✓ " : "… "}${short(by)} ${words[its]} ${short(of)}</li>`;
  })}</ul>
  <p class="note">Late heartbeats are known of ${short(/** @type {any} */ (state.cluster).this)} alone, suspicions of every member that answers.</p>`;
}

/** @param {{ state: State }} props */
function Members({ state }) {
  const cluster = /** @type {import("./types").Cluster} */ (state.cluster);
  const gone = Object.entries(state.gone);
  return html`<section class="card"><h2>Members <small>oldest first</small></h2><div class="scroll" tabindex="0" role="region" aria-label="Members"><table class="stacked">
    <thead><tr><th scope="col">Member</th><th scope="col">State</th><th scope="col">Zone</th>
      <th scope="col" class="right">Calls/s</th><th scope="col" class="right">p99</th><th scope="col" class="right">Clients</th><th scope="col" class="right">Processor</th>
      <th scope="col">Memory</th><th scope="col" class="right">Entries held</th><th scope="col" class="right">Bytes held</th>
      <th scope="col" class="right">Partitions owned</th><th scope="col" class="right">Backed up</th><th scope="col" class="right">List, table ver</th></tr></thead>
    <tbody>${cluster.members.map((each) => html`<${Row} key=${each.member} each=${each} cluster=${cluster} />`)}
      ${gone.map(([address, at]) => html`<tr key=${address} class="gone"><th scope="row">${address}</th><td colspan="12">✕ gone from the list ${span(now() - at)} ago</td></tr>`)}
    </tbody></table></div>
    <p class="note">Calls are those of clients in the last seconds. Entries and bytes held are those of owned partitions and of backups together; processor: 100 % is one core.</p></section>`;
}

/** The folders of the members: how their disks do, how long the logs are, what a power cut would take away. @param {{ cluster: import("./types").Cluster }} props */
function Disks({ cluster }) {
  return html`<section class="card"><h2>Disks</h2><div class="scroll" tabindex="0" role="region" aria-label="Disks"><table class="stacked">
    <thead><tr><th scope="col">Member</th><th scope="col">Disk</th><th scope="col" class="right">Log</th><th scope="col" class="right">Files</th><th scope="col" class="right">Not synced</th><th scope="col" class="right">Free</th></tr></thead>
    <tbody>${cluster.members.filter((each) => !each.lite).map((each) => html`<tr key=${each.member}><th scope="row">${each.address}</th>
      ${each.disk ? html`<td class="state" data-label="Disk">${each.disk.state === "ok" ? "✓ ok" : html`<span class="bad-text">▲ ${each.disk.state}: ${brief(each.disk.why)}</span>`}</td>
      <td class="right" data-label="Log">${bytes(each.disk.log_bytes)}</td><td class="right" data-label="Files">${count(each.disk.segments)}</td>
      <td class="right" data-label="Not synced">${bytes(each.disk.unsynced_bytes)}</td><td class="right" data-label="Free">${bytes(each.disk.room_bytes)}</td>`
      : html`<td colspan="5">no folder, or it does not tell</td>`}</tr>`)}</tbody></table></div>
    <p class="note">A power cut takes away what is not synced. Syncs begin 200 ms after a write at most.</p></section>`;
}

/** @param {{ each: Member, cluster: import("./types").Cluster }} props */
function Row({ each, cluster }) {
  const isBehind = each.view_version !== null && each.view_version < cluster.view_version;
  const by = cluster.suspicions.filter((one) => one.of === each.address).map((one) => short(one.by));
  const part = each.memory_limit ? (each.memory_used || 0) / each.memory_limit : 0;
  const words = [];
  if (each.address === cluster.master) words.push("★ master");
  if (each.address === cluster.this) words.push("this one");
  if (each.lite) words.push("holds no data");
  const trouble = by.length ? `▲ suspected by ${by.join(", ")}` : each.answers === false ? `… does not answer${each.silent_since ? ` for ${span(now() - each.silent_since)}` : ""}` : "";
  const place = order().indexOf(each.address);
  return html`<tr><th scope="row"><i class="swatch fill-${place % 8}" aria-hidden="true">${letter(place)}</i> ${each.address}</th>
    <td class="state" data-label="State">${words.join(" · ")} ${trouble ? html`<span class="bad-text">${trouble}</span>` : words.length ? "" : "✓"}</td>
    <td data-label="Zone">${each.zone || "–"}</td>
    <td class="right" data-label="Calls/s">${rate(each.calls_per_s)}</td><td class="right" data-label="p99">${duration(each.p99_ms)}</td>
    <td class="right" data-label="Clients">${count(each.clients)}</td>
    <td class="right" data-label="Processor">${each.processor === null ? "–" : `${Math.round(each.processor * 100)} %`}</td>
    <td data-label="Memory">${each.memory_limit ? html`<span class="meter" title="${bytes(each.memory_used)} of ${bytes(each.memory_limit)}"><span style=${{ width: `${Math.max(part * 100, 1).toFixed(1)}%` }}
      class=${part > 0.9 ? "bad" : ""}></span></span>` : ""} ${bytes(each.memory_used)}</td>
    <td class="right" data-label="Entries held">${count(each.entries)}</td><td class="right" data-label="Bytes held">${bytes(each.bytes)}</td>
    <td class="right" data-label="Partitions owned">${count(each.owned)}</td><td class="right" data-label="Backed up">${count(each.backups)}</td>
    <td class="right ${isBehind ? "warn-text" : ""}" data-label="List, table ver">${count(each.view_version)}, ${count(each.table_version)}${isBehind ? " (behind)" : ""}</td></tr>`;
}
