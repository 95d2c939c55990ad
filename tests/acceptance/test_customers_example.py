"""``examples/customers``: each customer of a Django project has an entry, and it follows the customer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.processes import ROOT

FOLDER = ROOT / "examples" / "customers"
CLIENT = """
import json, sys
import django
django.setup()
from django.core.management import call_command
from django.test import Client
from reports.models import Customer
call_command("migrate", run_syncdb=True, verbosity=0)
client, answers = Client(), []
for method, path, body in json.loads(sys.argv[1]):
    answer = client.generic(method, path, json.dumps(body), content_type="application/json")
    answers.append([answer.status_code, json.loads(answer.content or "null")])
print(json.dumps([answers, Customer.objects.count()]))
"""


class Site:
    """The example with a database and a server of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._environ = {
            **os.environ,
            "CELERY_BROKER_URL": url,
            "REPORTS_DATABASE": str(folder / "customers.sqlite3"),
            "DJANGO_SETTINGS_MODULE": "reports.settings",
            "PYTHONPATH": os.pathsep.join((str(FOLDER), str(ROOT))),
        }

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=FOLDER, env=self._environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, *requests: tuple[str, str, Any]) -> tuple[list[Any], int]:
        answers, customers = json.loads(self.run("-c", CLIENT, json.dumps(requests)))
        return answers, customers

    def entries(self) -> dict[str, str]:
        found = json.loads(self.run("-m", "celery", "-A", "reports", "catchup", "entries", "--json"))
        return {one["name"]: one["schedule"] for one in found["entries"]}


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Site:
    pytest.importorskip("django", reason="Django is not installed")
    return Site(redis_url, tmp_path)


def test_the_entry_of_a_customer_follows_the_customer(site: Site) -> None:
    acme = {"name": "Acme", "hour": 6, "timezone": "Europe/Berlin"}
    answers, customers = site.ask(
        ("POST", "/customers", acme),
        ("POST", "/customers", {"name": "Globex", "hour": 9}),
        ("POST", "/customers", {"name": "Initech", "hour": 25}),
        ("PATCH", "/customers/1", {"hour": 7}),
        ("DELETE", "/customers/2", None),
    )

    assert [status for status, _ in answers] == [201, 201, 400, 200, 204]
    assert answers[2][1]["mistakes"][0]["where"] == "entries.daily-report-3.schedule"
    assert customers == 1
    assert site.entries() == {"daily-report-1": "0 7 * * *"}


def test_the_entries_are_made_again_from_the_customers(site: Site, redis_url: str) -> None:
    site.ask(("POST", "/customers", {"name": "Acme", "hour": 6}))
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()

    assert site.run("manage.py", "sync_reports") == "1 entries changed\n"
    assert site.run("manage.py", "sync_reports") == "0 entries changed\n"
    assert site.entries() == {"daily-report-1": "0 6 * * *"}
