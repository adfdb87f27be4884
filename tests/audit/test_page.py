"""The page of a report, whatever members logged: it comes from anybody."""

import re

import msgspec

from phalanx_spark.audit.page import page_of
from phalanx_spark.audit.verdicts import AuditVerdict, Report, Status

ODD = "@TITLE@ @STYLE@ @REPORT@ @BUNDLE@ @SCRIPT@ @NONE@ </script><script>alert(1)</script> <!--"


def report_of(said: str) -> Report:
    verdict = AuditVerdict(property="p", title=said, rule="CS-33", status=Status.HOLDS, said=said)
    return Report(
        ok=True, folder=said, files=1, events=1, members=1, histories=1, begins=0, ends=1, verdicts=(verdict,), bad_lines=0,
        bad=(), empty_logs=(), notes=(), took_s=1.0,
    )  # fmt: skip


def parts(page: str) -> tuple[str, str]:
    """The report in the page, and the page without it and the title."""
    found = re.search(r'<script id="report" type="application/json">(.*?)</script>', page, re.S)
    assert found is not None
    return found[1], re.sub(r"<title>.*?</title>", "", page[: found.start(1)] + page[found.end(1) :], flags=re.S)


def test_names_that_are_marks_of_the_page_change_nothing() -> None:
    _, plain = parts(page_of(report_of("flights")))
    assert "vegaEmbed" in plain
    told, around = parts(page_of(report_of(ODD)))
    assert around == plain
    assert msgspec.json.decode(told)["folder"] == ODD
    assert "<" not in told
