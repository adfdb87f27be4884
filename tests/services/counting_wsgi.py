"""A service of several processes that counts: a WSGI application with a member in each worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import phalanx

grid = phalanx.start_member_in_thread(phalanx.Config(port=os.environ["PORTS"], cluster=os.environ["CLUSTER"]))
counts = grid.map("counts", key=str, value=int)


def app(environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], Any]) -> Iterable[bytes]:
    """`/count/NAME` counts, and tells the sum; `/worker` tells who answers, and how many members there are."""
    what, _, name = environ["PATH_INFO"].strip("/").partition("/")
    status = "200 OK"
    try:
        if what == "count":
            body = str(counts.increment(name))
        else:
            view = grid.view
            body = f"{os.getpid()} {len(view.members) if view is not None else 0} {len(counts)}"
    except phalanx.IndeterminateWrite as error:
        status, body = "500 Internal Server Error", str(error)
    except phalanx.UnavailableError as error:
        status, body = "503 Service Unavailable", str(error)
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body.encode())))])
    return [body.encode()]
