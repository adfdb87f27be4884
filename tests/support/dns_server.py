"""A DNS server whose answers a test changes, for each asker by itself: what one pod sees, another may not see yet."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dnslib import AAAA, QTYPE, RCODE, RR, A  # type: ignore[import-untyped]  # it has no types
from dnslib.server import BaseResolver, DNSLogger, DNSServer  # type: ignore[import-untyped]  # as above

EVERYBODY = "everybody"


class Answers(BaseResolver):  # type: ignore[misc]  # dnslib has no types
    """The records of one name. `of[asker]` is what that address is told, `of[EVERYBODY]` all others."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.of: dict[str, list[str]] = {EVERYBODY: []}
        """Asker to addresses, IPv4 and IPv6; none: there is no such name."""
        self.fails: set[str] = set()
        """Askers that are told SERVFAIL."""
        self.silent: set[str] = set()
        """Askers that get no answer at all."""
        self.asked: Counter[str] = Counter()

    def resolve(self, request: Any, handler: Any) -> Any:
        asker = handler.client_address[0]
        self.asked[asker] += 1
        reply = request.reply()
        if asker in self.silent:
            raise ConnectionAbortedError("no answer, as the test wants it")
        if asker in self.fails:
            reply.header.rcode = RCODE.SERVFAIL
            return reply
        records = self.of.get(asker, self.of[EVERYBODY])
        if str(request.q.qname).rstrip(".") != self.name or not records:
            reply.header.rcode = RCODE.NXDOMAIN
            return reply
        for each in records:
            kind, data = (QTYPE.AAAA, AAAA(each)) if ":" in each else (QTYPE.A, A(each))
            if request.q.qtype == kind:
                reply.add_answer(RR(request.q.qname, kind, rdata=data, ttl=0))
        return reply


@contextmanager
def dns_server(answers: Answers, host: str, port: int = 53) -> Iterator[None]:
    """Serve over UDP and TCP (long answers) at an address of the network namespace in which this thread is."""
    silent = DNSLogger(log="-request,-reply,-truncated,-error,-recv,-send,-data")
    servers = [DNSServer(answers, address=host, port=port, tcp=tcp, logger=silent) for tcp in (False, True)]
    for server in servers:
        server.start_thread()
    try:
        yield
    finally:
        for server in servers:
            server.stop()
            server.server.server_close()
