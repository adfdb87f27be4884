"""Whatever Phalanx raises on purpose can be named by a program that imports phalanx."""

import phalanx
from phalanx.common import errors


def test_every_error_is_exported() -> None:
    made = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, phalanx.PhalanxError)
    }
    assert len(made) > 20
    assert made <= set(phalanx.__all__)
    assert issubclass(phalanx.SerializationError, ValueError)
