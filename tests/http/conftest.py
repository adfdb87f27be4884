"""A certificate for a member's HTTP port."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    files = folder / "certificate.pem", folder / "key.pem"
    given = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    named = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run(["openssl", *given.split(), *named], check=True, capture_output=True)
    return files
