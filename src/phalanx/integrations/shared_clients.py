"""One client for all backends of a process that have the same settings. A forked process may use its parent's, too."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from phalanx.client.sync import Client

_clients: dict[tuple[Any, ...], Client] = {}
_making = threading.Lock()


def client_of_this_process(members: str, settings: Mapping[str, Any]) -> Client:
    """Return the client, which is made at the first use. `settings`: further arguments of `Client`. Raises as `Client`."""
    at = (members, *sorted(settings.items()))
    with _making:
        if at not in _clients:
            _clients[at] = Client(members, **settings)
        return _clients[at]
