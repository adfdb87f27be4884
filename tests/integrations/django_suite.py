"""Runs Django's own tests of cache backends, from the folder of its source archive, against members at `argv[2]`.

`python django_suite.py FOLDER HOST:PORT [BACKEND]`; the last line tells how many passed, were skipped, and failed.
"""

import sys
import unittest

folder, members = sys.argv[1:3]
BACKEND = sys.argv[3] if len(sys.argv) > 3 else "phalanx.integrations.django.PhalanxCache"
sys.path.insert(0, f"{folder}/tests")

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    CACHES={"default": {"BACKEND": BACKEND, "LOCATION": members}},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3"}},
    INSTALLED_APPS=["cache", "django.contrib.contenttypes", "django.contrib.sessions"],
    SECRET_KEY="of tests",
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    USE_TZ=False,
    ROOT_URLCONF="",
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
)
django.setup()

from cache.tests import BaseCacheTests, caches_setting_for_tests  # noqa: E402
from django.test import TestCase, override_settings  # noqa: E402
from django.test.runner import DiscoverRunner  # noqa: E402


@override_settings(
    CACHES=caches_setting_for_tests(
        BACKEND=BACKEND,
        LOCATION=members,
        # Django lets each test cull by MAX_ENTRIES; here a map's own bounds decide.
        exclude={"cull", "zero_cull"},
    )
)
class PhalanxCacheTests(BaseCacheTests, TestCase):  # type: ignore[misc]
    """As Django's documentation tells authors of backends."""

    if BACKEND.endswith(
        "RedisCache"
    ):  # what Redis says of a value that is no number, as in Django's own class of these tests
        from redis import ResponseError as incr_decr_type_error

    test_cull = None
    test_zero_cull = None
    test_cull_delete_when_store_empty = None


runner = DiscoverRunner(verbosity=0, interactive=False)
runner.setup_test_environment()
databases = runner.setup_databases()
result = unittest.TextTestRunner(sys.stderr, verbosity=2).run(
    unittest.defaultTestLoader.loadTestsFromTestCase(PhalanxCacheTests)
)
runner.teardown_databases(databases)
failed = len(result.failures) + len(result.errors)
print(f"passed {result.testsRun - failed - len(result.skipped)}, skipped {len(result.skipped)}, failed {failed}")
