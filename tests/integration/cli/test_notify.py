"""``celery catchup notify test``, and that no command shows what is secret."""

from __future__ import annotations

import json
import re

from celery.app import utils

from celery_catchup.cli import catchup
from celery_catchup.testing import FakeClock
from tests.integration.notifications.http_receivers import receiving
from tests.integration.operating import Project

SECRET = "SeCrEt-of-the-tests-0123456789"


def test_each_receiver_gets_a_test_and_the_exit_code_says_whether_all_accept(
    redis_url: str, desk_clock: FakeClock
) -> None:
    with receiving() as good, receiving(500, 500) as bad:
        notify = [{"url": good.url, "secret": SECRET}, {"url": bad.url, "format": "slack"}]
        project = Project(redis_url, desk_clock, catchup_notify=notify)

        text = project.text("notify", "test", code=1)
        told = project.json("notify", "test", code=1)["receivers"]

    assert f"http://127.0.0.1:{good.port}/…: accepted" in text
    assert f"http://127.0.0.1:{bad.port}/…: failed: it answered 500" in text
    assert [one["problem"] for one in told] == [None, "it answered 500"]
    assert good.accepted[0]["details"] == {"test": True}
    assert "X-Catchup-Signature" in good.messages[0].headers
    assert "SeCrEt" not in text + json.dumps(told)


def test_without_receivers_there_is_nothing_to_test(redis_url: str, desk_clock: FakeClock) -> None:
    found = Project(redis_url, desk_clock).catchup("notify", "test", code=1)

    assert "catchup_notify lists no receiver." in found.stderr


def test_celery_masks_the_receivers_in_its_report(redis_url: str, desk_clock: FakeClock) -> None:
    notify = [{"url": "https://example.com/SeCrEt", "secret": SECRET}]
    project = Project(redis_url, desk_clock, catchup_notify=notify)

    report = utils.bugreport(project.app)

    assert catchup.name == "catchup"
    assert re.search(r"catchup_notify: '\*+'", report)
    assert "SeCrEt" not in report


def test_a_mistake_in_a_receiver_shows_no_secret_in_the_doctor(redis_url: str, desk_clock: FakeClock) -> None:
    notify = [{"url": "https://example.com/SeCrEt", "secret": SECRET, "on": ["nothing"]}]
    found = Project(redis_url, desk_clock, catchup_notify=notify).catchup("doctor", code=1)

    assert "catchup_notify" in found.stdout
    assert "SeCrEt" not in found.stdout + found.stderr
