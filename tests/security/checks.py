"""The security checks: what must hold, and which tests say so."""

from __future__ import annotations

from dataclasses import dataclass

_SOURCES = "architecture/test_sources.py::"
_INPUT = "security/test_input.py::"
_KEYS = "security/test_keys.py::"
_CLAIMS = "integration/worker_plugin/test_claims.py::"
_CONNECTIONS = "integration/store/test_connections.py::"
_API = "integration/flower/test_api.py::"
_PAGES = "integration/flower/test_pages.py::"
_LETTERS = "security/test_dead_letters.py::"
_WORST = "unit/test_worst_inputs.py::test_a_bad_input_gets_one_clear_sentence[{}]"


@dataclass(frozen=True)
class Check:
    """One check. ``tests`` are node ids below ``tests/``; without brackets every case of the test."""

    number: int
    what: str
    tests: tuple[str, ...]


CHECKS = (
    Check(1, "nothing that is stored or sent can become code",
          (_SOURCES + "test_nothing_that_is_stored_or_sent_can_become_code",
           _SOURCES + "test_such_code_would_be_found")),
    Check(2, "state is JSON, and a pickled value is refused",
          (_INPUT + "test_a_pickled_value_is_no_record",
           "reliability/test_broken_records.py::"
           "test_a_waiting_run_whose_record_is_damaged_becomes_a_dead_letter_and_the_chain_goes_on[bytes]")),
    Check(3, "a pickled message is refused as Celery refuses it",
          (_INPUT + "test_a_pickled_message_is_refused_by_the_worker_and_the_next_run_is_executed",)),
    Check(4, "no Lua is put together from data",
          ("architecture/test_lua.py::test_no_python_code_puts_a_script_together_from_data",
           "architecture/test_lua.py::test_a_script_builds_no_key_by_itself")),
    Check(5, "hostile names stay in their place",
          (_KEYS + "test_no_two_entries_share_a_key", _KEYS + "test_no_two_runs_share_an_id",
           _KEYS + "test_a_hostile_name_is_stored_verbatim_and_touches_nothing_else")),
    Check(6, "a run that the ledger does not know is an ordinary task",
          (_CLAIMS + "test_a_run_that_the_ledger_does_not_know_is_an_ordinary_task",)),
    Check(7, "a forged run id runs nothing twice and lends itself to no other task",
          (_CLAIMS + "test_a_run_that_has_ended_is_not_executed",
           _CLAIMS + "test_another_task_with_a_runs_headers_is_an_ordinary_task",
           _CLAIMS + "test_a_forged_token_does_not_steal_a_running_run")),
    Check(8, "headers of any type kill no worker",
          (_CLAIMS + "test_strange_headers_are_executed_as_ordinary_tasks",
           _INPUT + "test_headers_of_any_type_are_a_delivery_of_ours_or_none")),
    Check(9, "no password is shown anywhere",
          ("unit/config/test_settings.py::test_no_way_of_printing_settings_shows_a_password",
           "unit/config/test_settings.py::test_no_error_shows_a_password_either",
           "unit/store/test_opening.py::test_no_password_is_shown",
           _CONNECTIONS + "test_no_password_is_shown_when_a_connect_fails",
           _CONNECTIONS + "test_no_password_is_shown_when_it_is_wrong",
           _CONNECTIONS + "test_a_worker_does_not_tell_the_url_when_it_is_asked_for_its_settings",
           _CONNECTIONS + "test_celery_report_does_not_show_the_url",
           "integration/dispatch/test_outbox.py::test_a_password_is_not_in_an_error",
           "integration/cli/test_doctor.py::test_an_unreachable_store_is_a_finding_without_a_password",
           "acceptance/test_drop_in.py::test_the_banner_shows_where_the_state_is_without_its_password",
           "reliability/test_at_start.py::test_a_wrong_password_is_one_line_without_it")),
    Check(10, "a password may have any characters",
          (_CONNECTIONS + "test_a_login_may_have_any_characters",
           _CONNECTIONS + "test_the_broker_takes_the_same_login_from_the_same_url")),
    Check(11, "TLS verifies, and giving that up is a warning",
          (_CONNECTIONS + "test_a_certificate_of_an_unknown_authority_is_refused",
           _CONNECTIONS + "test_a_certificate_that_is_not_right_is_refused",
           _CONNECTIONS + "test_verification_can_be_given_up_and_that_is_a_warning",
           _CONNECTIONS + "test_a_host_name_that_is_not_checked_is_a_warning")),
    Check(12, "two apps on one server never touch each other",
          (_KEYS + "test_two_apps_on_one_server_never_touch_each_other",)),
    Check(13, "a namespace that a key cannot hold is refused",
          ("unit/config/test_settings.py::test_a_namespace_must_fit_into_a_key",
           *(_WORST.format(f"settings: {name}")
             for name in ("an empty namespace", "braces", "a star", "a blank")))),
    Check(14, "Flower's tab asks who one is, on every route",
          (_API + "test_every_route_needs_authentication",
           _API + "test_without_authentication_the_api_is_closed_unless_flowers_own_is_open",
           _API + "test_nothing_can_be_changed_in_a_read_only_flower_or_without_authentication",
           _API + "test_a_cross_site_request_changes_nothing",
           _API + "test_reading_never_changes_anything",
           _API + "test_responses_have_security_headers",
           "integration/flower/test_mount.py::test_the_tab_needs_a_login",
           _PAGES + "test_pages_name_no_other_host_and_no_inline_script",
           _PAGES + "test_a_page_may_not_be_framed_and_runs_only_files_of_its_own")),
    Check(15, "what somebody wrote stays text, in pages and terminals",
          (_API + "test_text_of_users_stays_text",
           _PAGES + "test_a_name_an_argument_and_an_error_stay_text",
           "integration/cli/test_surface.py::test_nothing_that_a_terminal_obeys_gets_through")),
    Check(16, "dead letters hold no secret, are bounded, and are gone when purged",
          (_LETTERS + "test_neither_line_nor_letter_has_a_value_that_is_named_like_a_secret",
           _LETTERS + "test_both_have_a_greatest_length",
           _LETTERS + "test_what_is_purged_is_nowhere_any_more",
           "reliability/test_names_and_repairs.py::test_what_is_named_like_a_secret_is_not_kept",
           "reliability/test_names_and_repairs.py::"
           "test_beyond_the_most_dead_letters_the_oldest_count_as_failed_and_dispatch_goes_on")),
    Check(17, "a replay needs a known task, and is on record",
          ("integration/cli/test_dlq.py::test_a_run_whose_task_nobody_declares_is_not_replayed",
           _LETTERS + "test_a_replay_is_on_record_with_who_asked_for_it")),
    Check(18, "no file format is read that can do more than hold data",
          (_INPUT + "test_no_file_format_that_can_do_more_than_hold_data_is_read",)),
    Check(19, "the watermark file is its owner's, and no link is followed",
          ("reliability/test_watermark_file.py::test_only_its_owner_can_read_it_and_it_is_replaced_as_a_whole",
           "reliability/test_watermark_file.py::test_a_link_in_its_place_is_neither_followed_nor_written_through",
           "reliability/test_watermark_file.py::test_a_watermark_file_that_cannot_be_right_is_ignored_with_a_warning")),
    Check(20, "no cron string takes long", (_INPUT + "test_no_cron_string_takes_long",)),
    Check(21, "a zone is a key and never a path",
          (_INPUT + "test_a_zone_is_a_key_and_never_a_path", _WORST.format("policy: a zone as a path"))),
    Check(22, "labels of metrics are few",
          ("integration/metrics/test_metrics.py::test_labels_are_few_and_never_a_run_or_a_time",
           "integration/metrics/test_metrics.py::test_the_number_of_entries_with_a_series_is_limited")),
    Check(23, "no dependency that is not named and tested at its lowest",
          (_INPUT + "test_the_package_needs_what_it_says_and_each_has_a_lowest_version_that_is_tested",)),
    Check(24, "scripts are bounded",
          (_INPUT + "test_scripts_are_bounded_and_read_no_keys_but_those_they_are_given",
           "unit/config/test_settings.py::test_a_batch_is_from_one_to_a_thousand")),
    Check(25, "no request takes Flower down",
          ("security/test_attacks.py::test_an_attack_is_bounded_and_others_are_served_meanwhile",)),
    Check(26, "a poisoned record is one row that says so",
          ("security/test_poisoned_records.py::test_a_run_that_cannot_be_read_is_one_row",
           "security/test_poisoned_records.py::"
           "test_nothing_else_that_is_poisoned_breaks_a_page_or_an_answer")),
    Check(27, "notes are shown without secrets, and no text reads as something else",
          ("security/test_shown_texts.py::test_notes_are_shown_without_what_is_named_like_a_secret",
           "security/test_shown_texts.py::"
           "test_characters_that_change_the_direction_of_text_are_shown_as_escapes")),
    Check(28, "metrics in Flower need its login",
          ("integration/metrics/test_metrics.py::"
           "test_without_a_login_flower_shows_them_only_where_it_has_none",)),
    Check(29, "the embedded server needs a password",
          ("integration/testing/test_embedded_server.py::"
           "test_it_answers_only_to_those_who_know_its_password",)),
    Check(30, "Flower's Redis user needs no more than SECURITY.md grants",
          ("security/test_rights.py::test_flower_with_its_rights_shows_and_changes_without_one_denial",)),
)  # fmt: skip
