// Whether the page is as narrow as a phone: pictures are drawn otherwise there, not only smaller.

import { useEffect, useState } from "../vendor/htm-preact.js";

const query = matchMedia("(max-width: 700px)");

/** Return whether it is; the component that calls this is drawn anew when that changes. */
export function useNarrow() {
  const [isNarrow, set] = useState(query.matches);
  useEffect(() => {
    const listener = () => set(query.matches);
    query.addEventListener("change", listener);
    return () => query.removeEventListener("change", listener);
  }, []);
  return isNarrow;
}
