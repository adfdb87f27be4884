// What the member sends: the same names as in sections.py, map_figures.py, story.py and console.py.

export interface Hello {
  cluster: string; this: string; release: string; may_look: boolean; may_change: boolean; key: string;
  choices: Record<string, string[]>; key_types: string[]; now: number;
}
export interface Member {
  member: string; address: string; zone: string; weight: number; lite: boolean; answers: boolean | null;
  silent_since: number | null; view_version: number | null; table_version: number | null; owned: number; backups: number;
  calls_per_s: number | null; p99_ms: number | null; clients: number | null; processor: number | null;
  entries: number | null; bytes: number | null; memory_used: number | null; memory_limit: number | null; kept_entries: number;
  event_log_problem: string; disk: Disk | null;
}
export interface Disk {
  state: string; why: string; unsynced_bytes: number; unsynced_ms: number; log_bytes: number; segments: number; room_bytes: number;
}
export interface Suspicion { by: string; of: string; reason: string }
export interface RestartWait {
  said: string; members: string[]; lacking: number; lacks_majority: boolean; last_seen: number | null; clusters: string[][];
}
export interface Cluster {
  at: number; this: string; against_ready: string[]; view_version: number; table_version: number; master: string | null;
  restart_wait: RestartWait | null; members: Member[]; suspicions: Suspicion[]; late: string[];
}
export interface Partitions {
  assigned: boolean; table_version: number; members: string[]; present: boolean[]; rows: number[][]; wanted: number;
  configured: number; lacking: Record<string, number>; without_owner: number[];
}
export interface Move {
  partition: number; kind: string; source: string | null; destination: string | null; phase: string; age_ms: number;
}
export interface Moves {
  known: boolean; under_way: Move[]; at_rest?: boolean; planned?: number; arrived?: number; remaining?: number; done?: number;
  copied_entries?: number; copied_bytes?: number; took_ms?: number; left_ms?: number | null; lacking?: number;
  leaving?: { address: string; replicas: number }[]; kept?: { address: string; entries: number }[]; searching?: string[];
}
export interface Schema { key: string[]; columns: { name: string; type: string }[]; more?: number }
export interface Calls { per_s: number; p50_ms: number | null; p99_ms: number | null }
export interface Settings {
  backups: { sync: number; async: number };
  protection: { on: boolean; minimum: number; majority: boolean; reads: boolean; writes: boolean };
  merge_policy: string; max_entries: number; max_bytes: number; eviction: string; max_idle_ms: number; dicts: string; durability: string;
  journal: { capacity: number; max_bytes: number }; schema: Schema | null;
}
export interface MapRow {
  map: string; entries: number; bytes: number; backup_entries: number; backup_bytes: number; evicted: number; expired: number;
  reads: Calls; writes: Calls; errors: number; settings: Settings;
}
export interface Maps { maps: MapRow[]; more: number; usual: Settings; over_s: number; silent: string[]; uncounted: string[] }
export interface Activity {
  every_ms: number; end: number; reads: (number | null)[]; writes: (number | null)[]; errors: (number | null)[]; p99_ms: (number | null)[];
  entries: (number | null)[]; memory: (number | null)[]; clients: (number | null)[]; moves: (number | null)[];
  uncounted: string[]; silent: string[];
}
export interface News { key: string; at: number; level: string; said: string }
export interface StoryLine { key: string; at: number; group: string; level: string; said: string; events: number[]; about: string[] }
export interface StoryEvent {
  id: number; at: number; by: string; kind: string; group: string; said: string; reason: string; rule: string; meaning: string;
  about: string[]; partition: number | null;
}
export interface Reason { what: string; count: number; said: string; advice: string }
export interface Judged {
  address: string; known: boolean; may_be_killed?: boolean; may_leave?: boolean; against_kill?: Reason[];
  against_leaving?: Reason[]; notes?: string[]; only_here?: number; lacking?: number; unconfirmed?: number; kept_entries?: number;
}
export interface Losses {
  unacknowledged_losses: { id: string; kind: string; at: number; said: string; count: number }[];
  earlier_losses: { losses: number; partitions: number };
  away: { address: string; at: number; how: string }[];
}
export interface Safety { members: Judged[]; losses: Losses | null; memory_short: boolean }
export interface CutSide {
  master: string; members: string[]; waiting: string[]; lost_partitions: number; refuses: { map: string; needs: string }[]; because: string;
}
export interface WhatIf {
  members: string[]; cut: string[][]; kept: string[]; removed: string[]; because: string; lost_partitions: number; optimal: boolean;
  is_full_cut: boolean; sides: CutSide[]; undecided: string[]; meeting: string;
}
export interface Entries { map: string; is_all: boolean; next: string | null; entries: { key: string; value: string; bytes: number }[] }
export interface Sample { at: number; reads: number; writes: number; p99: number | null }
export interface State {
  link: "connecting" | "live" | "lost"; lostAt: number; skew: number; hello: Hello | null; cluster: Cluster | null;
  partitions: Partitions | null; moves: Moves | null; maps: Maps | null; safety: Safety | null; activity: Activity | null;
  news: News | null; lines: StoryLine[]; story: StoryEvent[];
  forgotten: boolean; gone: Record<string, number>; history: Record<string, Sample[]>; moved: Record<string, number>;
}
