"""Categories of failures: the exception's own word, then the settings, then the built-in lists."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.config.settings import Settings
from celery_catchup.errors import ConfigurationError
from celery_catchup.worker_plugin.failure_categories import Categories


class TaggedError(Exception):
    catchup_category = "transient"


class FeedError(ValueError):
    """A failure of somebody's own."""


class EmptyFeedError(FeedError):
    """One that is not like its kind."""


def categories(**settings: Any) -> Categories:
    return Categories(Settings.read({f"catchup_{name}": value for name, value in settings.items()}))


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (ConnectionResetError(), "transient"),
        (TimeoutError(), "transient"),
        (KeyError("x"), "permanent"),
        (FeedError(), "permanent"),
        (RuntimeError(), "unknown"),
        (TaggedError(), "transient"),
    ],
    ids=repr,
)
def test_without_settings_a_failure_is_sorted_by_its_class(error: Exception, category: str) -> None:
    assert categories().of(error) == category


@pytest.mark.parametrize("named", [FeedError, f"{__name__}.FeedError"], ids=["class", "dotted name"])
def test_a_class_of_the_settings_counts_before_the_built_in_ones(named: object) -> None:
    known = categories(transient_errors=[named])

    assert (known.of(FeedError()), known.of(ValueError())) == ("transient", "permanent")


def test_of_several_classes_in_the_settings_the_nearest_decides() -> None:
    known = categories(transient_errors=["Exception", EmptyFeedError], permanent_errors=[FeedError])

    found = [known.of(error) for error in (TypeError(), FeedError(), EmptyFeedError())]

    assert found == ["transient", "permanent", "transient"]


def test_an_exception_that_says_what_it_is_is_believed() -> None:
    assert categories(permanent_errors=[TaggedError]).of(TaggedError()) == "transient"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no.such.Error", "it cannot be imported"),
        ("NoSuchError", "it cannot be imported"),
        ("json.dumps", "it is not an exception class"),
    ],
)
def test_a_name_that_is_no_exception_class_is_a_warning_and_the_others_count(
    name: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = categories(permanent_errors=[name, "OSError"])

    (warned,) = caplog.messages
    assert (
        warned
        == f'msg="Configuration warning" setting=catchup_permanent_errors name={name} problem="{problem}"'
    )
    assert known.of(OSError()) == "permanent"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("proj.DownError", "expected a list of exception classes such as ['proj.DownError'], got"),
        ([""], "expected an exception class or its dotted name, got ''"),
        (["proj errors"], "expected an exception class or its dotted name, got 'proj errors'"),
        ([int], "expected an exception class or its dotted name, got"),
        ([3], "expected an exception class or its dotted name, got 3"),
    ],
    ids=repr,
)
def test_what_is_no_list_of_exception_classes_is_refused(value: object, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        categories(transient_errors=value)

    assert told in str(refused.value)


def test_a_class_cannot_be_transient_and_permanent() -> None:
    with pytest.raises(ConfigurationError, match="'OSError' is in catchup_transient_errors too"):
        categories(transient_errors=["OSError"], permanent_errors=["OSError"])
