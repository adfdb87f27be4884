"""How tasks reach a cluster with a secret."""

import pickle
from pathlib import Path

import pytest

from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.common.errors import UsageError
from phalanx_spark.archive.exporting import Source


def test_the_file_with_the_secret_goes_along_to_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine has no variable that names it."""
    monkeypatch.delenv("PHALANX_SECRET_FILE", raising=False)
    path = str(tmp_path / "missing")
    source = pickle.loads(pickle.dumps(Source("127.0.0.1:1", "phalanx", path)))
    with pytest.raises(UsageError, match="missing"):
        source.connect()
    with pytest.raises(UsageError, match="missing"):
        ask_any("127.0.0.1:1", "phalanx", Inquirer.placement, secret_file=path)
    with pytest.raises(UsageError, match="missing"):
        find_master("127.0.0.1:1", "phalanx", secret_file=path)
