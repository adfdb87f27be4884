"""Who may ask: whoever reaches loopback by its own names, or bears the token. Settings that would open the port are refused."""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.runtime.settings import optional_packages
from support.http_asking import ask, connect, listening, said_on

TOKEN = "a token that nobody guesses"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def basic(password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'anybody:{password}'.encode()).decode()}"}


def test_the_token_opens_all_but_the_probes_need_none(token_file: Path) -> None:
    with listening(http_token_file=token_file) as member:
        for path in ("/livez", "/readyz"):
            assert ask(member.http_port, path).status == 200
        for path in ("/metrics", "/api/members", "/nothing"):
            refused = ask(member.http_port, path)
            assert refused.status == 401
            assert refused.headers["www-authenticate"].startswith("Basic")
            assert TOKEN not in refused.text
        for headers in ({"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"bearer  {TOKEN} "}, basic(TOKEN)):
            assert ask(member.http_port, "/metrics", headers=headers).status == 200
        wrong = [
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Digest {TOKEN}",
            "Basic ===",
            f"Bearer {TOKEN[:-1]}",
            "Bearer \xe9",
        ]
        for header in [{"Authorization": value} for value in wrong] + [basic(""), basic(TOKEN + "x")]:
            assert ask(member.http_port, "/metrics", headers=header).status == 401
        assert TOKEN not in repr(member)


def test_without_a_token_a_page_of_another_site_reads_nothing() -> None:
    """A page may let a name of its own point to 127.0.0.1; the browser sends that name."""
    with listening() as member:
        for host in ("localhost", "127.0.0.1:99", "[::1]:99", "LOCALHOST"):
            assert ask(member.http_port, "/api/members", headers={"Host": host}).status == 200, host
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "[::2]"):
            assert ask(member.http_port, "/api/members", headers={"Host": host}).status == 421, host


PATHS = ("/", "/livez", "/metrics", "/api/members", "/console/entries?map=m", "/console/stream", "/nothing")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_a_page_of_another_site_lets_a_browser_ask_is_refused(site: str, token_file: Path) -> None:
    """It could not read the answers; but the browser has the password, and each answer is work."""
    with listening(http_token_file=token_file) as member:
        for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("websocket", "websocket")):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest, **basic(TOKEN)}
            for path in PATHS:
                refused = ask(member.http_port, path, headers=headers)
                assert (refused.status, refused.text) == (403, "a page of another site asks for this\n"), (path, mode)
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", **basic(TOKEN)}
        for path in PATHS[1:]:
            assert ask(member.http_port, path, headers=link).status == 403, path
        assert ask(member.http_port, "/", headers=link, method="POST").status == 403
        assert ask(member.http_port, "/", headers=link).status == 200, "a link to the console"


def test_what_the_page_or_its_user_asks_is_answered() -> None:
    with listening() as member:
        for site in ("same-origin", "none"):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
            assert ask(member.http_port, "/api/members", headers=headers).status == 200, site


def test_answers_are_for_no_page_and_no_cache() -> None:
    with listening() as member:
        for path in ("/livez", "/metrics", "/api/members", "/nothing"):
            headers = ask(member.http_port, path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers


def test_with_a_certificate_the_port_speaks_tls_alone(certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with listening(http_certificate_file=certificate[0], http_key_file=certificate[1]) as member:
        assert ask(member.http_port, "/readyz", host="localhost", tls=trusting).text == "ready\n"
        with connect(member.http_port) as plain:
            plain.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"ready" not in said_on(plain)
        assert ask(member.http_port, "/readyz", host="localhost", tls=trusting).status == 200


def refusal(**settings: Any) -> str:
    with pytest.raises(UsageError) as refused:
        listening(**settings)
    return str(refused.value)


def test_settings_that_cannot_be_are_refused_before_anything_starts(tmp_path: Path, token_file: Path) -> None:
    short, open_to_all = tmp_path / "short", tmp_path / "open"
    short.write_text("secret")
    short.chmod(0o600)
    open_to_all.write_text(TOKEN)
    open_to_all.chmod(0o644)
    assert "http_host: '0.0.0.0' is not a loopback address" in refusal(http_host="0.0.0.0")
    assert "http_key_file" in refusal(http_key_file="key.pem")
    assert "http_port: '87o1' is not a port" in refusal(http_port="87o1")
    assert "http_port: 70000 is not between" in refusal(http_port=70_000)
    assert "cannot read" in refusal(http_token_file=tmp_path / "none")
    assert "the token has 6 bytes" in refusal(http_token_file=short)
    assert "open to other users" in refusal(http_token_file=open_to_all)
    said = refusal(http_certificate_file=token_file)
    assert "http_certificate_file" in said
    assert TOKEN not in said
    assert "No such file" in refusal(http_certificate_file=tmp_path / "none")


def test_a_port_that_is_taken_is_said_and_the_next_of_a_range_is_taken() -> None:
    with listening() as first:
        taken = first.http_port
        said = refusal(http_port=taken)
        assert f"http_port: cannot listen on 127.0.0.1:{taken}: Address already in use" in said
        with listening(http_port=f"{taken}-{taken + 20}") as second:
            assert taken < second.http_port <= taken + 20
    with listening(http_port=taken) as again:
        assert again.http_port == taken, "it is free when its member has stopped"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional_packages, "find_spec", lambda name: None if name == "uvicorn" else True)
    assert refusal() == "http_port needs uvicorn: pip install 'phalanx[http]'"
    with phalanx.start_member_in_thread(phalanx.Config(port=0)) as member:
        assert member.http_port == 0, "nobody needs it who has no HTTP port"
