// The ring: members on a circle, in the order of their age, and links between all pairs.

import { html } from "../vendor/htm-preact.js";
import { opinion, same } from "./links.js";
import { fateOf } from "./what_if.js";
import { counted, order, short } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {{ x: number, y: number }} Point */

const WIDE = 640;
const HIGH = 480;
const MOST_DRAWN = 20; // of more members only links that say something are drawn

/** @param {{ state: State, chosen: string[] | null, choose: (pair: string[] | null) => void, cuts: string[][], found: any }} props */
export function Ring({ state, chosen, choose, cuts, found }) {
  const cluster = /** @type {import("./types").Cluster} */ (state.cluster);
  const names = cluster.members.map((each) => each.address);
  const ghosts = Object.keys(state.gone).slice(0, 4);
  const all = [...names, ...ghosts];
  const radius = all.length > 12 ? 16 : 27;
  /** @type {Record<string, Point>} */
  const places = {};
  all.forEach((address, i) => {
    const angle = (i / all.length) * 2 * Math.PI - Math.PI / 2;
    places[address] = all.length === 1 ? { x: WIDE / 2, y: HIGH / 2 } : { x: WIDE / 2 + Math.cos(angle) * 215, y: HIGH / 2 + Math.sin(angle) * 160 };
  });
  /** @type {string[][]} */
  const pairs = [];
  names.forEach((one, i) => names.slice(i + 1).forEach((other) => pairs.push([one, other])));
  const isCut = (/** @type {string[]} */ pair) => cuts.some((cut) => same(cut, pair));
  const drawn = pairs.filter((pair) => names.length <= MOST_DRAWN || isCut(pair) || pair.includes(cluster.this)
    || [pair, [pair[1], pair[0]]].some(([by, of]) => opinion(state, by, of) === "suspects"));
  return html`<svg class="ring" viewBox="0 0 ${WIDE} ${HIGH}" role="group" aria-label="Ring of ${counted(names.length, "member")}">
    ${drawn.map((pair) => html`<${Link} key=${pair.join()} state=${state} pair=${pair} places=${places} radius=${radius}
      isChosen=${chosen && same(chosen, pair)} choose=${choose} isCut=${isCut(pair)} />`)}
    ${cluster.members.map((each) => html`<${Dot} key=${each.address} each=${each} state=${state} at=${places[each.address]} radius=${radius}
      fate=${fateOf(found, each.address)} />`)}
    ${ghosts.map((address) => html`<g key=${address} class="dot ghost" transform="translate(${places[address].x} ${places[address].y})">
      <circle r=${radius} /><text class="mark" y="6">✕</text><text y=${radius + 17}>${short(address)}</text><text class="small" y=${radius + 32}>gone</text></g>`)}
  </svg>`;
}

/** @param {any} props */
function Link({ state, pair, places, radius, isChosen, choose, isCut }) {
  const [a, b] = pair;
  const there = opinion(state, a, b), back = opinion(state, b, a);
  const from = places[a], to = places[b];
  const kind = there === "suspects" && back === "suspects" ? "suspects" : there === "late" || back === "late" ? "late" : "hears";
  const isOneWay = (there === "suspects") !== (back === "suspects");
  const said = `Link ${short(a)} – ${short(b)}: ${there === "suspects" ? `${short(a)} suspects ${short(b)}` : ""}${back === "suspects" ? ` ${short(b)} suspects ${short(a)}` : ""}${there !== "suspects" && back !== "suspects" ? kind : ""}${isCut ? ", cut as assumed" : ""}`;
  const press = () => choose(isChosen ? null : pair);
  const line = { x1: from.x, y1: from.y, x2: to.x, y2: to.y };
  return html`<g class="link-group ${isChosen ? "chosen" : ""}" role="button" tabindex="0" aria-pressed=${isChosen ? "true" : "false"} aria-label=${said}
      onClick=${press} onKeyDown=${(/** @type {KeyboardEvent} */ e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); press(); } }}>
    <line class="hit" ...${line} />
    <line class="link ${isCut ? "cut" : isOneWay ? "one-way" : kind}" ...${line} />
    ${there === "suspects" ? html`<${Arrow} from=${from} to=${to} radius=${radius} />` : ""}
    ${back === "suspects" ? html`<${Arrow} from=${to} to=${from} radius=${radius} />` : ""}
    ${isCut ? html`<text class="scissors" x=${(from.x + to.x) / 2} y=${(from.y + to.y) / 2 + 6}>✂</text>` : ""}
  </g>`;
}

/** An arrow from who suspects to near its suspect, with a bar across: nothing is heard from there. @param {any} props */
function Arrow({ from, to, radius }) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const x = (to.x - from.x) / length, y = (to.y - from.y) / length;
  const begin = { x: from.x + x * (radius + 2), y: from.y + y * (radius + 2) };
  const end = { x: to.x - x * (radius + 10), y: to.y - y * (radius + 10) };
  const wing = (/** @type {number} */ side) => `${end.x - x * 12 - y * 7 * side} ${end.y - y * 12 + x * 7 * side}`;
  const bar = { x: to.x - x * (radius + 4), y: to.y - y * (radius + 4) };
  return html`<g aria-hidden="true"><line class="link suspects" x1=${begin.x} y1=${begin.y} x2=${end.x} y2=${end.y} />
    <path class="arrow" d="M${end.x} ${end.y} L${wing(1)} L${wing(-1)} z" />
    <line class="bar" x1=${bar.x - y * 10} y1=${bar.y + x * 10} x2=${bar.x + y * 10} y2=${bar.y - x * 10} /></g>`;
}

/** @param {any} props */
function Dot({ each, state, at, radius, fate }) {
  const cluster = state.cluster;
  const place = order().indexOf(each.address);
  const isMaster = each.address === cluster.master, isThis = each.address === cluster.this;
  const isSuspected = cluster.suspicions.some((/** @type {any} */ one) => one.of === each.address);
  const most = Math.max(1, ...cluster.members.map((/** @type {any} */ one) => one.owned + one.backups));
  const part = (each.owned + each.backups) / most, round = 2 * Math.PI * (radius + 4);
  const isAbove = at.y < HIGH / 2 - 60;
  const [first, second] = isAbove ? [-radius - 27, -radius - 12] : [radius + 22, radius + 37];
  const state_ = fate ? "removed" : isSuspected ? "suspected" : each.answers === false ? "silent" : "";
  return html`<g class="dot ${state_}" transform="translate(${at.x} ${at.y})">
    <title>${each.address}${isMaster ? ", master" : ""}: owns ${each.owned}, backs up ${each.backups}</title>
    <circle class="load-track" r=${radius + 4} /><circle class="load" r=${radius + 4} stroke-dasharray="${part * round} ${round}" transform="rotate(-90)" />
    <circle r=${radius} class="fill-${place % 8} pattern" />
    <text class="mark" y="7">${fate === "would be removed" ? "✕" : fate ? "✂" : isSuspected ? "▲" : isMaster ? "★" : each.answers === false ? "…" : each.lite ? "○" : ""}</text>
    <text class="name" y=${first}>${short(each.address)}${isThis ? " (this)" : ""}</text>
    ${radius > 20 ? html`<text class="small" y=${second}>${fate || `${isMaster ? "master · " : ""}${each.zone ? `${each.zone} · ` : ""}${each.owned}+${each.backups}`}</text>` : ""}
  </g>`;
}
