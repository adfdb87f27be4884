// A look into a map: one key, or page by page the entries that fulfil a condition; keys and values can be copied.

import { html, useState } from "../vendor/htm-preact.js";
import { useNarrow } from "./narrow.js";
import { ask } from "./store.js";
import { bytes, count, counted } from "./words.js";

/** @typedef {import("./types").Entries} Entries */

/** @param {{ state: import("./types").State, name: string }} props */
export function Look({ state, name }) {
  const hello = state.hello;
  const isNarrow = useNarrow();
  const [how, setHow] = useState("where");
  const [text, setText] = useState("");
  const [type, setType] = useState("str");
  const [found, setFound] = useState(/** @type {Entries | null} */ (null));
  const [pages, setPages] = useState(/** @type {{ after: string, first: number }[]} */ ([]));
  const [problem, setProblem] = useState("");
  const show = async (/** @type {{ after: string, first: number }[]} */ to) => {
    setProblem("");
    const query = new URLSearchParams({ map: name });
    if (how === "key") {
      query.set("key", text);
      query.set("key_type", type);
    } else query.set("where", text || "true");
    const { after } = to[to.length - 1];
    if (after) query.set("after", after);
    try {
      setFound(await ask(`/console/entries?${query}`));
      setPages(to);
    } catch (error) {
      setFound(null);
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    show([{ after: "", first: 1 }]);
  };
  const change = (/** @type {(value: string) => void} */ set) => (/** @type {any} */ e) => { set(e.target.value); setFound(null); };
  if (hello && !hello.may_look)
    return html`<section class="card"><h2>Look into it</h2><p>The cluster has a secret, and this port has no token: entries are not shown here.
      Give this member an <code>http_token_file</code>.</p></section>`;
  return html`<section class="card" aria-labelledby="look-title"><h2 id="look-title">Look into ${name}</h2>
    <form class="tools" onSubmit=${submit}>
      <label>By <select value=${how} onChange=${change(setHow)}><option value="where">condition</option><option value="key">key</option></select></label>
      ${how === "key" ? html`<label>Type <select value=${type} onChange=${change(setType)}>${(hello ? hello.key_types : []).map((each) => html`<option key=${each} value=${each} selected=${each === type}>${each}</option>`)}</select></label>` : ""}
      <label class="grow">${how === "key" ? "Key" : "Condition"} <input type="text" maxlength="4000" spellcheck=${false} autocomplete="off" value=${text}
        placeholder=${how === "key" ? "" : "price > 10 and city in ('Oslo', 'Rome')"} onInput=${change(setText)} /></label>
      <button>Look</button></form>
    <div aria-live="polite">${problem ? html`<p class="bad-text" id="look-problem">${problem}</p>` : ""}
      ${found ? html`<${Found} found=${found} pages=${pages} show=${show} />` : ""}</div>
    ${found && found.entries.length ? html`<div class="scroll low" tabindex="0" role="region" aria-label="Entries"><table class="entries ${isNarrow ? "stacked" : ""}"><thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="right">Bytes</th></tr></thead>
      <tbody>${found.entries.map((each) => html`<tr key=${each.key}><th scope="row"><${Copied} text=${each.key} what="key" /><code>${each.key}</code></th><td data-label="Value"><${Copied} text=${each.value} what="value" /><code>${each.value}</code></td><td class="right" data-label="Bytes">${bytes(each.bytes)}</td></tr>`)}</tbody></table></div>` : ""}
  </section>`;
}

/** How many were found, and the way to other pages. @param {{ found: Entries, pages: { after: string, first: number }[], show: (to: { after: string, first: number }[]) => void }} props */
function Found({ found, pages, show }) {
  const { first } = pages[pages.length - 1], number = found.entries.length;
  const next = found.next ? { after: found.next, first: first + number } : null;
  const said = !number ? (first > 1 ? "no further entry" : "no entry") : first === 1 && found.is_all ? counted(number, "entry", "entries") : `entries ${count(first)} to ${count(first + number - 1)}${found.is_all ? ", the last" : ""}`;
  const lines = found.entries.map((each) => JSON.stringify([each.key, each.value])).join("\n");
  return html`<div class="tools pages"><span class="note">${said}${found.is_all || next ? "" : "; there are more: ask again with a narrower condition"}</span>
    ${pages.length > 1 ? html`<button class="quiet" onClick=${() => show(pages.slice(0, -1))}>◂ Page before</button>` : ""}
    ${next ? html`<button class="quiet" onClick=${() => show([...pages, next])}>Next page ▸</button>` : ""}
    ${number ? html`<${Copied} text=${lines} what="all shown" words="Copy all shown" />` : ""}</div>`;
}

/** A button that copies a text. @param {{ text: string, what: string, words?: string }} props */
function Copied({ text, what, words }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid((await copied(text)) ? "✓" : "✕");
    setTimeout(() => setSaid(""), 1500);
  };
  return html`<button type="button" class="quiet copy" aria-label="Copy ${what}" title="Copy ${what}" onClick=${copy}>${said || html`<${Sheets} />`}${words ? ` ${words}` : ""}</button>`;
}

/** Two sheets, drawn: not every font has such a sign. */
function Sheets() {
  return html`<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" class="sheets"><rect x="1" y="1" width="8" height="9" rx="1.5" /><rect x="5" y="4" width="8" height="9" rx="1.5" /></svg>`;
}

/** Copy a text, and return whether that went well. Browsers give pages that come without TLS from another machine no clipboard. @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const place = document.createElement("textarea");
    place.value = text;
    place.className = "unseen";
    document.body.append(place);
    place.select();
    const isCopied = document.execCommand("copy");
    place.remove();
    return isCopied;
  }
}
