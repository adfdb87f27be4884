"""What redis-py writes before the whole cluster is restarted. Its clients live on, and connect anew by themselves."""

import time

import redis

from phalanx.common.ids import Address, host_and_port
from restarts.python_clients import LONG_S
from support.processes import Cluster

EACH = 100


class RedisClients:
    """Two clients, one for each version of the protocol and for another database."""

    def __init__(self, cluster: Cluster) -> None:
        host, port = host_and_port(Address(cluster.members[0].address))
        self.client = redis.Redis(host, port, protocol=3, decode_responses=True)
        self.other = redis.Redis(host, port, db=1, decode_responses=True)
        self.strings: dict[str, str] = {}
        self.removed: list[str] = []

    def write(self) -> None:
        self.strings = {f"s{number}": f"text {number}" for number in range(EACH)}
        self.client.mset(self.strings)
        self.removed = [f"s{number}" for number in range(0, EACH, 4)]
        self.client.delete(*self.removed)
        for key in self.removed:
            del self.strings[key]
        self.long_since = time.monotonic()
        self.client.set("long", "lives", ex=LONG_S)
        with self.client.pipeline(transaction=False) as pipeline:
            for _ in range(EACH):
                pipeline.incr("count", 2)
            pipeline.execute()
        self.client.hset("user", mapping={"name": "Ada", "visits": 1})
        self.client.hincrby("user", "visits", 41)
        self.client.hset("user", "gone", "soon")
        self.client.hdel("user", "gone")
        assert self.client.set("once", "first", nx=True)
        self.lock = self.client.lock("lock", timeout=LONG_S)
        assert self.lock.acquire(blocking=False)
        self.other.set("in", "another database")
        self.other.flushdb()
        self.other.set("after", "the flush")

    def write_mortal(self, ttl_s: float) -> None:
        """Write a string and a hash with this time to live, and a lock that nobody renews."""
        ttl_ms = int(ttl_s * 1000)
        self.client.set("mortal", "string", px=ttl_ms)
        self.client.hset("mortal hash", "field", "value")
        self.client.pexpire("mortal hash", ttl_ms)
        assert self.client.set("mortal lock", "before", nx=True, px=ttl_ms)

    def close(self) -> None:
        self.client.close()
        self.other.close()
