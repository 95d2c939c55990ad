"""Redis URLs: what could be one, what could not, and that no password is ever shown."""

from __future__ import annotations

import pytest

from celery_catchup.config.redis_urls import read_redis_url
from celery_catchup.error_text import masked, shown

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379/0",
        "redis://localhost:6379?db=3",
        "redis://:hunter2@localhost/1",
        "redis://user:p%40ss%2Fword@redis.example.com:6380/15",
        "rediss://[::1]:6379/0?ssl_cert_reqs=required",
        "unix:///run/redis.sock",
        "unix://:hunter2@/run/redis.sock?db=1",
        "redis+socket:///run/redis.sock?virtual_host=1",
        "sentinel://a:26379;sentinel://b:26379;sentinel://c:26379/0",
        "sentinel://:hunter2@a:26379",
        "sentinel://a:26379/0?ssl_ca_certs=/etc/ca.pem",
        "rediss://localhost?ssl_cert_reqs=CERT_NONE&ssl_check_hostname=false",
        "redis://localhost/0?credential_provider=package.module.Class",
    ],
)
def test_a_url_is_taken_as_it_is(url: str) -> None:
    assert read_redis_url(url) == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:6379", "no scheme"),
        ("", "no scheme"),
        ("redis:/localhost", "no scheme"),
        ("amqp://localhost", "unknown scheme 'amqp'"),
        ("REDIS://localhost", "unknown scheme 'REDIS'"),
        ("redis://", "names no host"),
        ("redis://:6379/0", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://:hunter2", "names no host"),
        ("redis://localhost:", "the port of host 'localhost' is not a number"),
        ("redis://localhost:hunter2", "the port of host 'localhost' is not a number"),
        ("redis://localhost:0", "not a number from 1 to 65535"),
        ("redis://localhost:65536", "not a number from 1 to 65535"),
        ("redis://localhost:٦٣٧٩", "not a number from 1 to 65535"),
        ("redis://a:6379,b:6379", "the port of host 'a'"),
        ("redis://localhost/main", "the database of host 'localhost' is not a number"),
        ("redis://localhost/0/1", "the database of host 'localhost' is not a number"),
        ("redis://localhost?db=-1", "the database of host 'localhost' is not a number"),
        ("redis://:hunter2#1@localhost", "percent-encode"),
        ("redis://:hunter2/x@localhost", "percent-encode"),
        ("redis://:hunter2@x@localhost", "percent-encode"),
        ("redis://localhost:6379/0 ", "blanks or line breaks"),
        ("redis://local\nhost", "blanks or line breaks"),
        ("redis://a..b/0", "'a..b' is not a valid host name"),
        ("redis://localhost?socket_timeout=60", "unknown option 'socket_timeout' in the URL; known are db"),
        ("rediss://localhost?ssl_cert_req=none", "did you mean 'ssl_cert_reqs'?"),
        ("redis://localhost?ssl_cert_reqs=none", "ssl_cert_reqs is for TLS, .* write rediss://"),
        ("rediss://localhost?ssl_cert_reqs=perhaps", "expected none, optional or required, got 'perhaps'"),
        ("rediss://localhost?ssl_check_hostname=2", "expected true or false, got '2'"),
        ("redis://localhost?virtual_host=x", "the database of host 'localhost' is not a number"),
        ("sentinel://a:1;sentinel://b:1/0?retry=1", "unknown option 'retry'"),
        ("redis://:hunter2?x=1@localhost", "percent-encode"),
        ("unix://", "names no socket"),
        ("redis+socket:///", "names no socket"),
        ("sentinel://a:26379;sentinel://:26379", "names no host"),
        (6379, "expected a Redis URL, got 6379"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_its_password(url: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        read_redis_url(url)

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@localhost",
        "redis://user:hunter2@localhost",
        "redis://:hunter2@still@localhost",
        "redis://:hunter2/still@localhost",
        "redis://localhost?password=hunter2&db=1",
        "unix:///run/redis.sock?db=1&password=hunter2",
        "sentinel://:hunter2@a:1;sentinel://:hunter2@b:2",
    ],
)
def test_credentials_are_masked_wherever_a_value_is_shown(url: str) -> None:
    for text in (masked(url), shown(url), shown([url]), shown({"url": url})):
        assert SECRET not in text
        assert "***" in text
