"""The fixtures that Flask-Caching's own tests take, with the backend of the grid at `PHALANX_MEMBERS`, and real time."""

import os
import time
import uuid
from pathlib import Path

import flask
import flask_caching
import pytest

MEMBERS = os.environ["PHALANX_MEMBERS"]


@pytest.fixture
def app(request: pytest.FixtureRequest) -> flask.Flask:
    app = flask.Flask(request.module.__name__, template_folder=str(Path(__file__).parent))
    app.testing = True
    app.config["CACHE_TYPE"] = "phalanx.integrations.flask_caching.FlaskCachingBackend"
    app.config["CACHE_PHALANX_MEMBERS"] = MEMBERS
    app.config["CACHE_PHALANX_MAP"] = f"flask-{uuid.uuid4()}"
    return app


@pytest.fixture
def cache(app: flask.Flask) -> flask_caching.Cache:
    return flask_caching.Cache(app)


class RealClock:
    def advance(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock() -> RealClock:
    return RealClock()


@pytest.fixture(params=flask_caching.SUPPORTED_HASH_FUNCTIONS, ids=lambda each: each.__name__)
def hash_method(request: pytest.FixtureRequest) -> object:
    return request.param
