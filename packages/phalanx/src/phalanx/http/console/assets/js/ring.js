// The ring: members on a circle, in the order of their age, and links between all pairs.

import { html } from "../vendor/htm-preact.js";
import { opinion, same } from "./links.js";
import { useNarrow } from "./narrow.js";
import { fateOf } from "./what_if.js";
import { counted, letter, order, short } from "./words.js";

/** @typedef {import("./types").State} State */
/** @typedef {{ x: number, y: number }} Point */

/** How the ring is drawn: in the units of its picture, which on a phone are about those of the screen. */
const SHAPES = {
  wide: { width: 640, height: 480, across: 215, down: 160, letters: 8.6, line: 15, isNarrow: false },
  narrow: { width: 360, height: 400, across: 128, down: 138, letters: 8.6, line: 15, isNarrow: true },
};
const MOST_DRAWN = 20; // of more members only links that say something are drawn

/** @param {{ state: State, chosen: string[] | null, choose: (pair: string[] | null) => void, cuts: string[][], found: any }} props */
export function Ring({ state, chosen, choose, cuts, found }) {
  const shape = useNarrow() ? SHAPES.narrow : SHAPES.wide;
  const cluster = /** @type {import("./types").Cluster} */ (state.cluster);
  const names = cluster.members.map((each) => each.address);
  const ghosts = Object.keys(state.gone).slice(0, 4);
  const all = [...names, ...ghosts];
  const radius = all.length > 12 ? 16 : shape.isNarrow ? 22 : 27;
  /** @type {Record<string, Point>} */
  const places = {};
  all.forEach((address, i) => {
    const angle = (i / all.length) * 2 * Math.PI - Math.PI / 2;
    const [x, y] = all.length === 1 ? [0, 0] : [Math.cos(angle) * shape.across, Math.sin(angle) * shape.down];
    places[address] = { x: shape.width / 2 + x, y: shape.height / 2 + y };
  });
  const labels = fitting(all, places, radius, shape, cluster);
  /** @type {string[][]} */
  const pairs = [];
  names.forEach((one, i) => names.slice(i + 1).forEach((other) => pairs.push([one, other])));
  const isCut = (/** @type {string[]} */ pair) => cuts.some((cut) => same(cut, pair));
  const drawn = pairs.filter((pair) => names.length <= MOST_DRAWN || isCut(pair) || pair.includes(cluster.this)
    || [pair, [pair[1], pair[0]]].some(([by, of]) => opinion(state, by, of) === "suspects"));
  const ys = all.map((address) => places[address].y);
  const top = Math.min(...ys) - radius - 48, bottom = Math.max(...ys) + radius + 48;
  return html`<svg class="ring" viewBox="0 ${top} ${shape.width} ${bottom - top}" role="group" aria-label="Ring of ${counted(names.length, "member")}">
    ${drawn.map((pair) => html`<${Link} key=${pair.join()} state=${state} pair=${pair} places=${places} radius=${radius}
      isChosen=${chosen && same(chosen, pair)} choose=${choose} isCut=${isCut(pair)} />`)}
    ${cluster.members.map((each) => html`<${Dot} key=${each.address} each=${each} state=${state} at=${places[each.address]} radius=${radius} label=${labels && labels[each.address]}
      fate=${fateOf(found, each.address)} />`)}
    ${ghosts.map((address) => html`<g key=${address} class="dot ghost" transform="translate(${places[address].x} ${places[address].y})">
      <circle r=${radius} /><text class="mark" y="6">✕</text>${labels ? html`<text class="name" y=${labels[address].y}>${labels[address].lines[0]}</text><text class="small" y=${labels[address].y + shape.line}>gone</text>` : ""}</g>`)}
  </svg>`;
}

/**
 * Return for each member what stands beside its circle and how far below its middle; null: two would overlap, so letters stand in the
 * circles instead, as in the list of members.
 * @param {string[]} all @param {Record<string, Point>} places @param {number} radius @param {typeof SHAPES.wide} shape @param {import("./types").Cluster} cluster
 */
function fitting(all, places, radius, shape, cluster) {
  /** @type {Record<string, { y: number, lines: string[] }>} */
  const found = {};
  /** @type {{ left: number, right: number, top: number, bottom: number }[]} */
  const boxes = [];
  for (const address of all) {
    const each = cluster.members.find((one) => one.address === address);
    const lines = [`${short(address)}${address === cluster.this ? " (this)" : ""}`];
    const more = each ? [each.address === cluster.master ? "master" : "", each.zone, shape.isNarrow || all.length > 8 ? "" : `owns ${each.owned}, backs up ${each.backups}`].filter(Boolean).join(" · ") : "gone";
    if (more) lines.push(more);
    const { x, y } = places[address];
    const isAbove = y < shape.height / 2 - 60;
    found[address] = { y: isAbove ? -radius - 12 - (lines.length - 1) * shape.line : radius + 22, lines };
    const half = (Math.max(...lines.map((line) => line.length)) * shape.letters) / 2;
    const top = y + found[address].y - shape.line;
    boxes.push({ left: x - half, right: x + half, top, bottom: top + lines.length * shape.line });
    boxes.push({ left: x - radius, right: x + radius, top: y - radius, bottom: y + radius });
  }
  const fits = boxes.every((one, i) => one.left >= -4 && one.right <= shape.width + 4 && boxes.slice(i + 1).every((other) =>
    one.right <= other.left || other.right <= one.left || one.bottom <= other.top || other.bottom <= one.top));
  return fits ? found : null;
}

/** @param {any} props */
function Link({ state, pair, places, radius, isChosen, choose, isCut }) {
  const [a, b] = pair;
  const there = opinion(state, a, b), back = opinion(state, b, a);
  const from = places[a], to = places[b];
  const kind = there === "suspects" && back === "suspects" ? "suspects" : there === "late" || back === "late" ? "late" : there === "unknown" || back === "unknown" ? "unknown" : "hears";
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
function Dot({ each, state, at, radius, label, fate }) {
  const cluster = state.cluster;
  const place = order().indexOf(each.address);
  const isMaster = each.address === cluster.master;
  const isSuspected = cluster.suspicions.some((/** @type {any} */ one) => one.of === each.address);
  const most = Math.max(1, ...cluster.members.map((/** @type {any} */ one) => one.owned + one.backups));
  const part = (each.owned + each.backups) / most, round = 2 * Math.PI * (radius + 4);
  const lines = !label ? [] : fate ? [label.lines[0], fate] : label.lines;
  const first = label ? label.y - (label.y < 0 ? (lines.length - label.lines.length) * 15 : 0) : 0;
  const state_ = fate ? "removed" : isSuspected ? "suspected" : each.answers === false ? "silent" : "";
  return html`<g class="dot ${state_}" transform="translate(${at.x} ${at.y})">
    <title>${each.address}${isMaster ? ", master" : ""}: owns ${each.owned}, backs up ${each.backups}</title>
    <circle class="load-track" r=${radius + 4} /><circle class="load" r=${radius + 4} stroke-dasharray="${part * round} ${round}" transform="rotate(-90)" />
    <circle r=${radius} class="fill-${place % 8} pattern" />
    <text class="mark" y="7">${fate === "would be removed" ? "✕" : fate ? "✂" : isSuspected ? "▲" : !label ? letter(place) : isMaster ? "★" : each.answers === false ? "…" : each.lite ? "○" : ""}</text>
    ${lines.map((/** @type {string} */ line, /** @type {number} */ i) => html`<text key=${i} class=${i ? "small" : "name"} y=${first + i * 15}>${line}</text>`)}
  </g>`;
}
