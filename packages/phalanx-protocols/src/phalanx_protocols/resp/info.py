"""INFO: what a member knows of itself, in the sections and fields that tools for Redis read. What the grid does not have is 0."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from phalanx.common.ids import host_and_port
from phalanx.maps.call_plans import CallPlan
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.framing import bulk
from phalanx_protocols.resp.server_commands import members_of, node_id
from phalanx_protocols.resp.session import VERSION
from phalanx_protocols.resp.table import Commands

ARCH_BITS: Final = sys.maxsize.bit_length() + 1
COUNTED_MAPS: Final = 32
"""INFO counts the keys of so many databases."""
_ZEROS: Final = {
    "server": "redis_git_sha1:0 redis_git_dirty:0 redis_build_id:0 process_id:0 process_supervised:no hz:0 configured_hz:0 lru_clock:0 "
    "executable: config_file: io_threads_active:0",
    "clients": "cluster_connections:0 maxclients:0 client_recent_max_input_buffer:0 client_recent_max_output_buffer:0 blocked_clients:0 "
    "tracking_clients:0 clients_in_timeout_table:0",
    "memory": "used_memory:0 used_memory_human:0B used_memory_rss:0 used_memory_rss_human:0B used_memory_peak:0 used_memory_peak_human:0B "
    "used_memory_peak_perc:0.00% used_memory_overhead:0 used_memory_startup:0 used_memory_dataset:0 used_memory_dataset_perc:0.00% "
    "allocator_allocated:0 allocator_active:0 allocator_resident:0 total_system_memory:0 total_system_memory_human:0B used_memory_lua:0 "
    "used_memory_lua_human:0B used_memory_scripts:0 used_memory_scripts_human:0B number_of_cached_scripts:0 maxmemory:0 maxmemory_human:0B "
    "maxmemory_policy:noeviction allocator_frag_ratio:0.00 allocator_frag_bytes:0 allocator_rss_ratio:0.00 allocator_rss_bytes:0 "
    "rss_overhead_ratio:0.00 rss_overhead_bytes:0 mem_fragmentation_ratio:0.00 mem_fragmentation_bytes:0 mem_not_counted_for_evict:0 "
    "mem_replication_backlog:0 mem_clients_slaves:0 mem_clients_normal:0 mem_aof_buffer:0 mem_allocator:none active_defrag_running:0 "
    "lazyfree_pending_objects:0 lazyfreed_objects:0",
    "persistence": "loading:0 async_loading:0 rdb_changes_since_last_save:0 rdb_bgsave_in_progress:0 rdb_last_save_time:0 "
    "rdb_last_bgsave_status:ok rdb_last_bgsave_time_sec:0 rdb_current_bgsave_time_sec:-1 rdb_last_cow_size:0 aof_enabled:0 "
    "aof_rewrite_in_progress:0 aof_rewrite_scheduled:0 aof_last_rewrite_time_sec:-1 aof_current_rewrite_time_sec:-1 "
    "aof_last_bgrewrite_status:ok aof_last_write_status:ok aof_last_cow_size:0",
    "stats": "instantaneous_ops_per_sec:0 total_net_input_bytes:0 total_net_output_bytes:0 instantaneous_input_kbps:0.00 "
    "instantaneous_output_kbps:0.00 rejected_connections:0 sync_full:0 sync_partial_ok:0 sync_partial_err:0 expired_keys:0 "
    "expired_stale_perc:0.00 expired_time_cap_reached_count:0 evicted_keys:0 keyspace_hits:0 keyspace_misses:0 pubsub_channels:0 "
    "pubsub_patterns:0 latest_fork_usec:0 total_forks:0 migrate_cached_sockets:0 slave_expires_tracked_keys:0 total_error_replies:0",
    "replication": f"master_failover_state:no-failover master_replid:{'0' * 40} master_replid2:{'0' * 40} master_repl_offset:0 "
    "second_repl_offset:-1 repl_backlog_active:0 repl_backlog_size:0 repl_backlog_first_byte_offset:0 repl_backlog_histlen:0",
    "cpu": "used_cpu_sys:0.000000 used_cpu_user:0.000000 used_cpu_sys_children:0.000000 used_cpu_user_children:0.000000",
}
"""Section to what every member says of it."""


def _known(c: RespConnection) -> dict[str, Callable[[], list[str]]]:
    """Return by section what this member knows."""
    server = c.server
    port = host_and_port(c.local)[1]

    def about_this() -> list[str]:
        up_s = (c.now - server.began_at) // 1000
        return [
            f"redis_version:{VERSION}", "redis_mode:standalone", "server_name:phalanx", f"run_id:{node_id(c.grid.member).decode()}",
            f"member:{c.grid.member}", f"tcp_port:{port}", f"arch_bits:{ARCH_BITS}", f"server_time_usec:{c.grid.wall_ms() * 1000}",
            f"uptime_in_seconds:{up_s}", f"uptime_in_days:{up_s // 86_400}",
        ]  # fmt: skip

    return {
        "server": about_this,
        "clients": lambda: [f"connected_clients:{len(server.clients)}"],
        "memory": list,
        "persistence": list,
        "stats": lambda: [
            f"total_connections_received:{server.connected}", f"total_commands_processed:{server.commands_done}",
        ],
        "replication": lambda: ["role:master", "connected_slaves:0"],
        "cpu": list,
        "cluster": lambda: ["cluster_enabled:0", f"cluster_members:{len(members_of(c))}"],
    }  # fmt: skip


def info(c: RespConnection, args: list[bytes]) -> CallPlan[bytes]:
    wanted = {word.decode("latin-1").lower() for word in args[1:]} - {"default", "all", "everything"}
    lines: list[str] = []
    for name, make in _known(c).items():
        if not wanted or name in wanted:
            title = "CPU" if name == "cpu" else name.capitalize()
            lines += [f"# {title}", *make(), *_ZEROS.get(name, "").split(), ""]
    if not wanted or "keyspace" in wanted:
        lines.append("# Keyspace")
        for number, name in enumerate(c.server.maps[:COUNTED_MAPS]):
            count = yield from c.plans(name).size()
            if count:
                lines.append(f"db{number}:keys={count},expires=0,avg_ttl=0")
        lines.append("")
    return bulk("\r\n".join(lines).encode())


COMMANDS = Commands("server")
COMMANDS.add("info", -1, "Describes this member, and counts keys.", info, "loading stale", is_idempotent=True,
             differs="Figures that the grid does not have are 0; it has more at its HTTP port.")  # fmt: skip
