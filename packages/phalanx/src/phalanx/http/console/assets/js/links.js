// Links between members: pairs of addresses, and what the two ends think of each other.

/** @typedef {import("./types").State} State */

/** Return what one member thinks of another, as far as it is known. @param {State} state @param {string} by @param {string} of */
export function opinion(state, by, of) {
  const cluster = state.cluster;
  if (!cluster) return "unknown";
  const suspicion = cluster.suspicions.find((each) => each.by === by && each.of === of);
  if (suspicion) return "suspects";
  const its = cluster.members.find((each) => each.address === by);
  if (!its || its.answers === false) return "unknown";
  if (by === cluster.this && cluster.late.includes(of)) return "late";
  return "hears";
}

/** Return whether two pairs are one link. @param {string[]} one @param {string[]} other */
export function same(one, other) {
  return (one[0] === other[0] && one[1] === other[1]) || (one[0] === other[1] && one[1] === other[0]);
}
