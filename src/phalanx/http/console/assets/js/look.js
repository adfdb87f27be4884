// A look into a map: one key, or the first entries that fulfil a condition.

import { html, useState } from "../vendor/htm-preact.js";
import { ask } from "./store.js";
import { bytes, counted } from "./words.js";

/** @param {{ state: import("./types").State, name: string }} props */
export function Look({ state, name }) {
  const hello = state.hello;
  const [how, setHow] = useState("where");
  const [text, setText] = useState("");
  const [type, setType] = useState("str");
  const [found, setFound] = useState(/** @type {import("./types").Entries | null} */ (null));
  const [problem, setProblem] = useState("");
  const look = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setProblem("");
    const query = new URLSearchParams({ map: name });
    if (how === "key") {
      query.set("key", text);
      query.set("key_type", type);
    } else query.set("where", text || "true");
    try {
      setFound(await ask(`/console/entries?${query}`));
    } catch (error) {
      setFound(null);
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  if (hello && !hello.may_look)
    return html`<section class="card"><h2>Look into it</h2><p>The cluster has a secret, and this port has no token: entries are not shown here.
      Give this member an <code>http_token_file</code>.</p></section>`;
  return html`<section class="card" aria-labelledby="look-title"><h2 id="look-title">Look into ${name}</h2>
    <form class="tools" onSubmit=${look}>
      <label>By <select value=${how} onChange=${(/** @type {any} */ e) => { setHow(e.target.value); setFound(null); }}><option value="where">condition</option><option value="key">key</option></select></label>
      ${how === "key" ? html`<label>Type <select value=${type} onChange=${(/** @type {any} */ e) => setType(e.target.value)}>${(hello ? hello.key_types : []).map((each) => html`<option key=${each} value=${each} selected=${each === type}>${each}</option>`)}</select></label>` : ""}
      <label class="grow">${how === "key" ? "Key" : "Condition"} <input type="text" maxlength="4000" spellcheck=${false} autocomplete="off" value=${text}
        placeholder=${how === "key" ? "" : "price > 10 and city in ('Oslo', 'Rome')"} onInput=${(/** @type {any} */ e) => setText(e.target.value)} /></label>
      <button>Look</button></form>
    <div aria-live="polite">${problem ? html`<p class="bad-text" id="look-problem">${problem}</p>` : ""}
      ${found ? html`<p class="note">${found.entries.length ? counted(found.entries.length, "entry", "entries") : "no entry"}${found.is_all ? "" : "; there may be more"}</p>` : ""}</div>
    ${found && found.entries.length ? html`<div class="scroll low" tabindex="0" role="region" aria-label="Entries"><table class="entries"><thead><tr><th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="right">Bytes</th></tr></thead>
      <tbody>${found.entries.map((each, i) => html`<tr key=${i}><th scope="row"><code>${each.key}</code></th><td><code>${each.value}</code></td><td class="right">${bytes(each.bytes)}</td></tr>`)}</tbody></table></div>` : ""}
  </section>`;
}
