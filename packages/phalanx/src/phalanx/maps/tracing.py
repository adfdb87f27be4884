"""Whether the calls of maps are traced, and the check that OpenTelemetry is there.

Without tracing nothing of OpenTelemetry is imported, and maps are of the classes that know nothing of it: no call looks
whether it is on. With it, the maps that a client or member returns are of other classes (`maps.traced_maps`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.ids import Address
from phalanx.common.words import quoted

if TYPE_CHECKING:
    from phalanx.maps.traced_maps import Tracing

TRACING_VARIABLE: Final = "PHALANX_TRACING"


def find_tracing(given: bool | None) -> bool:
    """Return whether calls are traced: as given, or as the variable PHALANX_TRACING says; without it they are not.

    Raises `UsageError` if either is not a bool.
    """
    if given is not None:
        if not isinstance(given, bool):
            raise UsageError(f"tracing: {quoted(given)} is of type {type(given).__name__}: give True, False or None")
        return given
    text = os.environ.get(TRACING_VARIABLE, "")
    try:
        return bool(text) and msgspec.convert(text.strip(), bool, strict=False)
    except msgspec.ValidationError:
        raise UsageError(f"{TRACING_VARIABLE}: {quoted(text)} does not fit: give true or false") from None


def make_tracing(is_on: bool, server: Callable[[], Address | None]) -> Tracing | None:
    """Return what traces the calls of one client or member; None: they are not traced.

    `server`: returns the address through which the program reaches the grid; None: there are several. Raises `UsageError`
    if OpenTelemetry is not installed.
    """
    if not is_on:
        return None
    try:
        from phalanx.maps.traced_maps import Tracing  # its package is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise UsageError("tracing needs opentelemetry-api: pip install 'phalanx[tracing]'") from error
    return Tracing(server)
