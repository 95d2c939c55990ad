"""The watermark file: what a beat that was restarted still knows when the server has forgotten everything."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_catchup.engine.watermark_file import WatermarkFile
from celery_catchup.testing import FakeClock
from tests.integration.servers import a_scheduler

NINE, NOON = "2026-02-07T09:04:00Z", "2026-02-07T12:02:00Z"


def lose_everything(url: str, clock: FakeClock, file: Path, harm: Any = None) -> list[str]:
    """Beat ends at 09:04, the server loses all, beat comes back at 12:02; the slots it sends."""
    conf = {"catchup_mirror_file": str(file)}
    with a_scheduler(url, clock, **conf) as scheduler:
        scheduler.tick()
    with redis.Redis.from_url(url) as client:
        client.flushall()
        if harm is not None:
            harm(file)
        clock.set(NOON)
        with a_scheduler(url, clock, **conf) as scheduler:
            scheduler.tick()
        found: Any = client.lrange("celery", 0, -1)
    return [json.loads(message)["headers"]["scheduled_time"] for message in reversed(found)]


def test_what_the_server_forgot_while_beat_was_down_is_an_error_and_caught_up(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sent = lose_everything(redis_url, FakeClock(NINE), tmp_path / "watermarks.json")

    assert sent == [f"2026-02-07T{hour}:00:00Z" for hour in (10, 11, 12)]
    lost = [r for r in caplog.records if "has forgotten what it had acknowledged" in r.getMessage()]
    assert [record.levelname for record in lost] == ["ERROR"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"namespace": "other", "decided": {}}',
        '{"namespace": "proj", "decided": {"etl": "x"}}',
    ],
)
def test_a_watermark_file_that_cannot_be_right_is_ignored_with_a_warning(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    sent = lose_everything(
        redis_url,
        FakeClock(NINE),
        tmp_path / "watermarks.json",
        lambda file: file.write_text(text, encoding="utf-8"),
    )

    assert sent == []
    assert [r.levelname for r in caplog.records if "Watermark file is ignored" in r.getMessage()] == [
        "WARNING"
    ]


def test_only_its_owner_can_read_it_and_it_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "watermarks.json"
    clock = FakeClock()
    watermarks = WatermarkFile(file, namespace="x", monotonic=clock.monotonic)
    before = os.umask(0)
    try:
        watermarks.keep(lambda: {"etl": 1})
        first = file.stat()
        clock.advance(seconds=60)
        watermarks.keep(lambda: {"etl": 2})
    finally:
        os.umask(before)

    assert first.st_mode & 0o777 == 0o600
    assert file.stat().st_ino != first.st_ino
    assert watermarks.recall() == {"etl": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["watermarks.json"]


def test_a_link_in_its_place_is_neither_followed_nor_written_through(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim, file, clock = tmp_path / "victim", tmp_path / "watermarks.json", FakeClock()
    victim.write_text('{"namespace": "x", "decided": {"etl": 1}}', encoding="utf-8")
    file.symlink_to(victim)
    watermarks = WatermarkFile(file, namespace="x", monotonic=clock.monotonic)

    assert watermarks.recall() is None
    watermarks.keep(lambda: {"etl": 2})

    assert json.loads(victim.read_text(encoding="utf-8"))["decided"] == {"etl": 1}
    assert not file.is_symlink()
    assert "Watermark file is ignored" in caplog.text


def recalled(file: Path) -> dict[str, int] | None:
    return WatermarkFile(file, namespace="x", monotonic=FakeClock().monotonic).recall()


@pytest.mark.timeout(20)
def test_a_pipe_in_its_place_does_not_block_beat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "watermarks.json")

    assert recalled(tmp_path / "watermarks.json") is None
    assert "it is not a regular file" in caplog.text


def test_a_file_that_others_can_write_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "watermarks.json"
    file.write_text('{"namespace": "x", "decided": {"etl": 1}}', encoding="utf-8")
    file.chmod(0o666)

    assert recalled(file) is None
    assert "other users can write it" in caplog.text
    file.chmod(0o600)
    assert recalled(file) == {"etl": 1}


def test_a_file_of_another_user_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "watermarks.json"
    file.write_text('{"namespace": "x", "decided": {"etl": 1}}', encoding="utf-8")
    file.chmod(0o600)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    assert recalled(file) is None
    assert f"it belongs to user {owner}" in caplog.text


@pytest.mark.parametrize("place", ["no such folder/watermarks", "a file/watermarks", "."])
def test_a_place_that_cannot_be_written_is_said_once_and_beat_runs_on(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / "a file").touch()
    clock = FakeClock(NINE)
    with a_scheduler(redis_url, clock, catchup_mirror_file=str(tmp_path / place)) as scheduler:
        for _ in range(5):
            scheduler.tick()
            clock.advance(seconds=60)

    with redis.Redis.from_url(redis_url) as client:
        clock.set("2026-02-07T10:00:00Z")
        assert client.exists("{catchup:proj}:meta") == 1
    assert len([r for r in caplog.records if "Watermark file cannot be written" in r.getMessage()]) == 1


def test_a_full_disk_leaves_the_old_watermark_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, clock = tmp_path / "watermarks.json", FakeClock()
    watermarks = WatermarkFile(file, namespace="x", monotonic=clock.monotonic)
    watermarks.keep(lambda: {"etl": 1})
    clock.advance(seconds=60)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    watermarks.keep(lambda: {"etl": 2})

    assert watermarks.recall() == {"etl": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["watermarks.json"]
    assert "No space left" in caplog.text
