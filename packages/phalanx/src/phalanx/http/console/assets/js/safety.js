// What is at risk now, what may be stopped now, what was lost.

import { html } from "../vendor/htm-preact.js";
import { Event } from "./events.js";
import { now } from "./store.js";
import { brief, capital, clock, counted, short, span } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {import("./types").Judged} Judged */

const OF_LOSSES = /^(PartitionLost|KeptDropped|LossesAcknowledged|WritesMayBeMissing)$/;

/** Return what is at risk, in sentences. @param {State} state */
function risks(state) {
  const { cluster, partitions, safety, moves } = state;
  /** @type {string[]} */
  const found = [];
  if (!cluster || !partitions || !safety) return found;
  const lacking = Object.entries(partitions.lacking);
  if (lacking.length) {
    const first = Math.min(...lacking.map(([, at]) => at));
    found.push(`${counted(lacking.length, "partition")} with fewer than ${counted(partitions.wanted, "replica")}, for ${span(now() - first)}`);
  }
  if (partitions.without_owner.length) found.push(`${counted(partitions.without_owner.length, "partition")} without an owner: no program can read or write there`);
  if (partitions.assigned && partitions.configured === 1) found.push("no backups are configured: whatever a member holds goes with it");
  else if (partitions.assigned && partitions.wanted < partitions.configured)
    found.push(`${counted(partitions.configured, "replica")} are configured, and ${counted(cluster.members.filter((each) => !each.lite).length, "member")} can hold ${partitions.wanted}: start another member`);
  const zones = new Set(cluster.members.filter((each) => !each.lite).map((each) => each.zone));
  const [zone] = zones;
  if (partitions.wanted > 1 && zones.size === 1 && zone && cluster.members.length > 1) found.push(`all members are in zone ${zone}: its loss is the loss of all`);
  for (const each of safety.members) {
    if (each.only_here && partitions.configured > 1) found.push(`only ${short(each.address)} holds ${counted(each.only_here, "partition")}`);
    if (each.unconfirmed) found.push(`${counted(each.unconfirmed, "partition")} of ${short(each.address)} ${each.unconfirmed === 1 ? "has" : "have"} a backup that has not confirmed everything`);
    if (each.kept_entries) found.push(`${short(each.address)} keeps ${counted(each.kept_entries, "entry", "entries")} of a side that gave up its cluster, not merged yet`);
  }
  if (safety.memory_short) found.push("the memory of the others would not be enough if a member went");
  for (const each of cluster.members) {
    if (each.event_log_problem) found.push(`${short(each.address)} cannot write its event log (${each.event_log_problem}): events wait, and are lost if too many wait`);
  }
  if (cluster.restart_wait) found.push(cluster.restart_wait.said);
  for (const each of cluster.members) if (each.disk && each.disk.why) found.push(`the disk of ${short(each.address)} is ${each.disk.state}: ${each.disk.why}`);
  for (const each of cluster.suspicions) found.push(`${short(each.by)} suspects ${short(each.of)}`);
  if (moves && !moves.known) found.push("the master does not answer: what it moves is not known");
  return found;
}

/** @param {{ state: State, rest: string[] }} props */
export function Safety({ state }) {
  const safety = state.safety;
  if (!safety) return html`<p class="loading">This member is in no cluster.</p>`;
  const found = risks(state);
  return html`<div class="columns">
    <section class="card" aria-labelledby="risk"><h2 id="risk">At risk now</h2>
      ${found.length ? html`<ul class="plain risks">${found.map((each) => html`<li key=${each} class="warn-text">▲ ${capital(each)}.</li>`)}</ul>`
        : html`<p class="big good-text">✓ Nothing: every entry has all its replicas.</p>`}</section>
    <${Lost} state=${state} />
  </div>
  <section class="card" aria-labelledby="stop"><h2 id="stop">Safe to stop now? <small>as <code>phalanx safe</code> judges</small></h2>
    <div class="judged">${safety.members.map((each) => html`<${One} key=${each.address} each=${each} state=${state} />`)}</div></section>`;
}

/** @param {{ each: Judged, state: State }} props */
function One({ each, state }) {
  const isMaster = state.cluster && state.cluster.master === each.address;
  const head = html`<h3>${each.address}${isMaster ? html` <small>★ master</small>` : ""}</h3>`;
  if (!each.known) return html`<article class="judgement">${head}<p class="bad-text">… does not answer: treat it as if it could not be stopped</p></article>`;
  const verdicts = /** @type {[string, boolean | undefined, any[] | undefined][]} */ ([
    ["kill", each.may_be_killed, each.against_kill], ["stop gracefully (SIGTERM)", each.may_leave, each.against_leaving]]);
  return html`<article class="judgement">${head}
    ${verdicts.map(([how, may, against]) => html`<div key=${how}><p class=${may ? "good-text" : "bad-text"}><strong>${may ? "✓ safe to" : "✕ do not"} ${how}</strong></p>
      ${(against || []).map((reason) => html`<p key=${reason.what} class="reason">${capital(brief(reason.said))}. <em>${capital(reason.advice.replace(": add `--wait 60` to this command", ""))}.</em></p>`)}</div>`)}
    ${(each.notes || []).map((note) => html`<p key=${note} class="note">${capital(brief(note))}.</p>`)}</article>`;
}

/** @param {{ state: State }} props */
function Lost({ state }) {
  const losses = state.safety && state.safety.losses;
  const told = state.story.filter((each) => OF_LOSSES.test(each.kind) || each.group === "lost");
  return html`<section class="card" aria-labelledby="lost"><h2 id="lost">Lost data</h2>
    ${!losses ? html`<p>This member cannot say.</p>` : losses.unacknowledged_losses.length || losses.earlier_losses.losses ? html`<ul class="plain">${losses.unacknowledged_losses.map((each) => html`<li key=${each.id} class="bad-text">✕ ${brief(each.said)}</li>`)}</ul>
      <p class="note">Told until an operator takes note: <code>phalanx losses acknowledge</code>.</p>`
      : html`<p class="big good-text">✓ ${told.length ? "No loss that is not acknowledged." : "No data was lost."}</p>`}
    ${losses && losses.earlier_losses.losses ? html`<p class="bad-text">✕ and ${counted(losses.earlier_losses.losses, "earlier loss", "earlier losses")} of ${counted(losses.earlier_losses.partitions, "partition")}</p>` : ""}
    ${losses ? losses.away.map((each) => html`<p key=${each.address} class="warn-text">▲ ${each.address} was removed at ${clock(each.at)} and can come back with data that only it has</p>`) : ""}
    ${told.length ? html`<h3>What the story tells of losses</h3><ol class="events">${told.slice(-20).reverse().map((each) => html`<${Event} key=${each.id} each=${each} />`)}</ol>` : ""}</section>`;
}
