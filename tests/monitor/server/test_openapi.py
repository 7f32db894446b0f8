"""The API against its own description, by schemathesis: hostile requests, and answers that are as described."""

from __future__ import annotations

import pytest

for package in ("fastapi", "uvicorn", "websockets", "schemathesis"):
    pytest.importorskip(package, reason="needs requirements-dashboard-test.txt: make test-dashboard")

import schemathesis  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402

from tests.support.processes.live_server import LOOPBACK, TOKEN, Running  # noqa: E402

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    with Running(tmp_path_factory.mktemp("api"), is_attached=True) as running:
        yield schemathesis.openapi.from_url(f"http://{LOOPBACK}:{running.port}/openapi.json")


def test_every_answer_is_as_described(described):
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 7
    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def check(case):
            case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

        check()
