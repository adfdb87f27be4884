"""What Hazelcast's Python client writes before the whole cluster is restarted. The client lives on, and connects anew by itself."""

from typing import Any

from hazelcast.client import HazelcastClient
from hazelcast.config import IntType

from endpoints.hazelcast.compact_objects import CompactObject, ObjectSerializer
from phalanx.integrations.hazelcast import SERIALIZERS, FunctionCall
from restarts.python_clients import LONG_S
from support.processes import Cluster

EACH = 100


class Book(CompactObject):
    """An object whose schema the members keep for others."""


ILIAD = Book(("title", "string", "Iliad"), ("price", "nullable_int64", 12))
ROW = {"title": "Iliad", "price": 12}


class HazelcastClients:
    """One client, which never gives up its connection to the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.kept: dict[str, Any] = {}
        self.removed: list[str] = []
        self.client = self.connect()

    def connect(self) -> Any:
        """Return another client."""
        return HazelcastClient(
            cluster_name=self._cluster.name,
            cluster_members=[member.address for member in self._cluster.members],
            default_int_type=IntType.LONG,
            custom_serializers=SERIALIZERS,
            compact_serializers=[ObjectSerializer("Book", Book)],
        )

    def write(self) -> None:
        entries = self.client.get_map("h kept").blocking()
        self.kept = {f"k{number}": [number, "text", {"n": number}] for number in range(EACH)}
        entries.put_all(self.kept)
        self.removed = [f"k{number}" for number in range(0, EACH, 4)]
        for key in self.removed:
            entries.delete(key)
            del self.kept[key]
        entries.put("long", 1, ttl=LONG_S)
        counters = self.client.get_map("h counters").blocking()
        for _ in range(EACH):
            counters.execute_on_key("count", FunctionCall("increment", 2))
        self.client.get_map("h books").blocking().put("iliad", ILIAD)
        self.locks = self.client.get_map("h locks").blocking()
        self.locks.lock("held", lease_time=LONG_S)
        self.locks.lock("released", lease_time=LONG_S)
        self.locks.unlock("released")

    def write_mortal(self, ttl_s: float) -> None:
        """Write entries with this time to live."""
        for number in range(10):
            self.client.get_map("h mortal").blocking().put(number, number, ttl=ttl_s)

    def close(self) -> None:
        self.client.shutdown()
