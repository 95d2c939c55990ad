"""The table of bad input and bad states: what it is, what has to become of it, which tests say so.

``START``: beat does not start, exit code 2, a line for each mistake; ``SAID``: it starts and says so
once; ``ENTRY``: one entry or one run suffers, the others go on; ``WAIT``: beat lives, backs off and
goes on by itself; ``WORKS``: nothing bad comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

START, SAID, ENTRY, WAIT, WORKS = "START", "SAID", "ENTRY", "WAIT", "WORKS"

_WORST = "unit/test_worst_inputs.py::test_a_bad_input_gets_one_clear_sentence[{}]"
_AT_START = "reliability/test_at_start.py::"
_SAID_ONCE = _AT_START + "test_it_is_said_once_when_beat_starts[{}]"
_UNSENT = _AT_START + "test_an_entry_that_cannot_be_sent_is_refused_at_start[{}]"
_RECORDS = "reliability/test_broken_records.py::"
_REPAIRS = "reliability/test_names_and_repairs.py::"
_STATES = "reliability/test_states.py::"
_PROCESSES = "reliability/test_processes.py::"
_WAITS = "integration/store/test_server_states.py::test_a_beat_waits_out_a_server_that[{}]"
_SERVERS = "integration/store/test_server_states.py::"
_ENGINE = "integration/engine/test_engine.py::"
_RUNS = "integration/operations/test_runs.py::"
_DROP_IN = "acceptance/test_drop_in.py::"
_TROUBLED = "acceptance/test_troubled_servers.py::"


@dataclass(frozen=True)
class Row:
    """One row. ``tests`` are node ids below ``tests/``; without brackets every case of the test."""

    number: int
    what: str
    ends: str
    seen: str
    tests: tuple[str, ...]


def worst(*names: str) -> tuple[str, ...]:
    return tuple(_WORST.format(name) for name in names)


def waits(*names: str) -> tuple[str, ...]:
    return tuple(_WAITS.format(f"{kind}-{name}") for name in names for kind in ("valkey", "redis"))


ROWS = (
    Row(1, "a cron string that is none", START, "the field and its range",
        worst("cron: minute 61", "cron: three fields", "cron: letters", "cron: nothing")),
    Row(2, "a cron string that matches no date", SAID, "that it will never run, in no time",
        (_SAID_ONCE.format("30 February"), "security/test_input.py::test_no_cron_string_takes_long")),
    Row(3, "a step of zero, a reversed range, a long step", START, "the step; the others have a meaning",
        (*worst("cron: every zero minutes", "posix: over midnight"),
         _STATES + "test_a_reversed_range_goes_over_the_end_and_a_long_step_leaves_the_first_value")),
    Row(4, "forms of other crons", START, "the token, and what to write",
        worst("cron: six fields, seconds first", "cron: at boot", "posix: a macro", "posix: the last day",
              "posix: the nearest weekday", "posix: the second Friday")),
    Row(5, "both day fields", WORKS, "either in a cron string, both in a crontab",
        (_STATES + "test_both_day_fields_are_either_in_a_cron_string_and_both_in_a_crontab",)),
    Row(6, "a duration that is none", START, "why",
        worst("window: an unknown unit", "window: a sign", "window: zero", "window: scientific notation",
              "window: infinity", "window: not a number", "window: nothing", "window: a bool")),
    Row(7, "a duration as timedelta, number, ISO 8601", START, "a timedelta works, the others need a unit",
        ("unit/config/test_durations.py::test_a_timedelta_is_taken_as_it_is_also_where_text_is_coarser",
         *worst("window: seconds as a number", "window: ISO 8601"))),
    Row(8, "an unknown policy word", START, "the nearest one", worst("policy: a misspelt overlap")),
    Row(9, "an unknown option", START, "the nearest one",
        worst("settings: an unknown setting", "policy: a misspelt window")),
    Row(10, "a cap that is none", START, "the range; no runs at all is select: False",
        worst("policy: a negative cap", "policy: no runs", "policy: a true cap", "policy: a cap in quotes",
              "policy: a cap beyond reason")),
    Row(11, "a window shorter than the period", SAID, "both, and what is lost",
        (_SAID_ONCE.format("window"), _SAID_ONCE.format("misfire"))),
    Row(12, "a time zone that is none", START, "the nearest one",
        (*worst("policy: a zone on Mars", "policy: a zone of old", "policy: a zone in small letters",
                "policy: no zone"),
         "security/test_input.py::test_without_zone_data_the_advice_is_to_install_it")),
    Row(13, "a date without an offset", WORKS, "it is of the app's time zone",
        ("unit/config/test_policy.py::test_a_date_without_an_offset_is_wall_clock_time_of_the_app",)),
    Row(14, "a slot in a gap or a doubled hour", WORKS, "as Debian's cron, or as Celery's beat",
        ("property/test_cron_against_debian.py::test_slots_are_those_of_debians_cron",
         "property/test_crontab_against_celery_beat.py::test_slots_are_the_times_at_which_beat_fires",
         "property/test_planner.py::test_a_run_id_depends_on_the_instant_and_not_on_its_spelling")),
    Row(15, "zone rules that changed while beat was down", WORKS, "new slots, no run twice",
        (_STATES + "test_zone_rules_that_change_while_beat_is_down_give_new_slots_and_repeat_no_run",)),
    Row(16, "a schedule class that cannot be stepped", ENTRY, "catch-up is off, beat as Celery's",
        (_STATES + "test_a_schedule_that_cannot_be_replayed_runs_as_under_celery_and_that_is_said",)),
    Row(17, "an interval of 0.1 ms", START, "the shortest that beat can see",
        (_STATES + "test_a_schedule_with_a_policy_faster_than_beat_looks_is_refused",)),
    Row(18, "an interval without an anchor", WORKS, "the phase of its first sight, kept",
        (_STATES + "test_an_interval_keeps_the_phase_of_its_first_sight_over_a_restart",)),
    Row(19, "names that differ little", WORKS, "distinct keys, whatever the name",
        ("security/test_keys.py::test_no_two_entries_share_a_key",)),
    Row(20, "names that are empty, long or strange", START, "why; all others are encoded",
        (*worst("entry: an empty name", "entry: a name of 201 letters", "entry: a NUL in the name",
                "entry: a line break in the name"),
         "security/test_keys.py::test_a_hostile_name_is_stored_verbatim_and_touches_nothing_else")),
    Row(21, "a renamed entry", SAID, "new and orphaned; watermark rename",
        (_REPAIRS + "test_a_renamed_entry_is_a_new_one_and_the_old_state_is_listed",
         _REPAIRS + "test_a_rename_moves_the_watermark_and_no_slot_is_lost")),
    Row(22, "an entry removed and added again", WORKS, "its slots, as far as the window reaches",
        (_ENGINE + "test_an_entry_that_comes_back_has_lost_nothing",)),
    Row(23, "a schedule changed while beat was down", SAID, "the change, and how many slots it makes",
        (_ENGINE + "test_a_changed_schedule_holds_for_the_time_before_unless_told_otherwise",
         _STATES + "test_a_changed_schedule_is_told_with_the_number_of_slots_it_makes")),
    Row(24, "a task that beat does not know", WORKS, "it is sent by name",
        (_STATES + "test_a_task_that_beat_does_not_know_is_sent_all_the_same",)),
    Row(25, "a task that no worker knows", ENTRY, "open, sent again, then a dead letter NotRegistered",
        (_PROCESSES + "test_a_run_of_a_task_that_no_worker_knows_stays_open_and_is_dead_after_its_tries",)),
    Row(26, "arguments that cannot be serialised", START, "entry, serialiser and reason",
        (_UNSENT.format("an object"), _UNSENT.format("headers"))),
    Row(27, "arguments that fail when they are made", ENTRY, "the slot stays undecided and is tried again",
        ("integration/dispatch/test_atomic.py::test_an_entry_that_cannot_be_a_message_is_an_error_of_its_own",
         _ENGINE + "test_an_entry_that_cannot_be_sent_is_tried_again_and_loses_nothing")),
    Row(28, "options that a run has of its own", START, "the option; an expiry in the past is said",
        (_UNSENT.format("a task id"), _SAID_ONCE.format("expired"))),
    Row(29, "headers shared between entries", WORKS, "nobody's are changed",
        ("integration/dispatch/test_atomic.py::test_the_users_headers_are_never_changed",)),
    Row(30, "messages that expire before they are reached", SAID, "the arithmetic",
        (_SAID_ONCE.format("expiry"),)),
    Row(31, "a lease that cannot be renewed in time", START, "the rule; time-outs follow the lease",
        (*worst("settings: a short lease", "settings: a negative lease", "settings: a short lease of runs"),
         _STATES + "test_no_call_takes_longer_than_a_third_of_the_lease", _SAID_ONCE.format("time-out"))),
    Row(32, "a Redis URL that cannot be right", START, "what, without its password",
        (*worst("settings: another broker", "settings: a text as port", "settings: no host"),
         _AT_START + "test_a_database_that_the_server_has_not_is_refused",
         "acceptance/test_wrong_configuration.py::test_a_url_that_cannot_be_right_is_refused_without_its_password")),
    Row(33, "Redis is not there at start", WAIT, "one line, then silence",
        (_TROUBLED + "test_a_beat_waits_for_a_redis_that_is_not_there_yet",)),
    Row(34, "Redis goes away", WAIT, "every slot, afterwards",
        (_TROUBLED + "test_a_beat_outlives_its_redis_and_loses_nothing",
         _STATES + "test_not_one_slot_is_lost_however_long_redis_is_away")),
    Row(35, "the broker is away", WAIT, "slots are decided and wait in the outbox, in order",
        (_TROUBLED + "test_while_the_broker_is_away_slots_are_decided_and_wait_in_the_outbox",
         _TROUBLED + "test_a_run_whose_broker_is_away_is_published_when_it_is_back")),
    Row(36, "the state is away", WAIT, "nothing is sent",
        (_TROUBLED + "test_without_its_state_a_beat_sends_nothing_to_a_healthy_broker",)),
    Row(37, "replies are lost", WORKS, "no run twice",
        ("integration/store/test_connections.py::test_a_commit_whose_reply_is_lost_is_not_made_twice",)),
    Row(38, "a password is missing or wrong", START, "one line; later WAIT",
        (_AT_START + "test_a_missing_password_is_one_line_and_the_end",
         _AT_START + "test_a_wrong_password_is_one_line_without_it",
         *waits("locks_the_user_out", "has_another_password"))),
    Row(39, "a right is missing", START, "the rule that grants it; later WAIT",
        (_AT_START + "test_a_missing_right_is_printed_as_the_rule_that_grants_it",
         *waits("forbids_a_command", "forbids_scripts", "forbids_the_keys", "forbids_a_name"))),
    Row(40, "the server is a replica", WAIT, "so", waits("is_a_replica")),
    Row(41, "the server is loading", WAIT, "so",
        (_SERVERS + "test_a_beat_waits_out_a_server_that_is_loading",)),
    Row(42, "the server is busy with a script", WAIT, "so", waits("is_busy")),
    Row(43, "the server is out of memory", WAIT, "so; nothing is half written", waits("is_out_of_memory")),
    Row(44, "the server cannot save", WAIT, "its words", waits("cannot_save")),
    Row(45, "the server has too few replicas", WAIT, "so", waits("has_no_replicas")),
    Row(46, "a cluster, a lost primary", WAIT, "what a cluster can be used for",
        (*waits("is_a_replica_without_a_primary"),
         "integration/store/test_connections.py::test_a_node_that_dies_is_waited_for",
         "integration/store/test_connections.py::test_the_state_may_be_in_a_cluster_whichever_node_is_named",
         "integration/dispatch/test_atomic.py::test_a_cluster_has_no_queues_that_a_script_could_reach")),
    Row(47, "too many clients", WAIT, "so", waits("has_too_many_clients")),
    Row(48, "scripts are flushed", WORKS, "nothing",
        (_SERVERS + "test_scripts_that_were_flushed_are_loaded_again_unseen",)),
    Row(49, "everything is flushed", SAID, "at ERROR; beat goes on where it was",
        (_SERVERS + "test_a_flushed_server_is_an_error_and_the_slot_of_that_moment_is_sent",
         "reliability/test_watermark_file.py::"
         "test_what_the_server_forgot_while_beat_was_down_is_an_error_and_caught_up")),
    Row(50, "a server that evicts our keys", START, "the policy, and the setting that accepts it",
        (_AT_START + "test_a_server_that_may_evict_our_state_is_refused_unless_that_is_accepted",
         _AT_START + "test_a_policy_that_becomes_dangerous_later_is_a_warning")),
    Row(51, "a server that evicts what has a TTL", SAID, "that nothing of ours has one",
        (_SERVERS + "test_an_evicting_server_is_a_warning_at_the_start_of_a_term",
         "security/test_keys.py::test_nothing_of_ours_expires_by_itself")),
    Row(52, "a ledger shorter than a window", START, "both",
        worst("settings: a window longer than the ledger", "settings: a short ledger")),
    Row(53, "a key of the wrong type", WAIT, "named calmly; doctor --fix sets it aside",
        ("acceptance/test_suspicious_state.py::test_keys_of_another_kind_are_named_calmly_and_the_beat_lives",
         _REPAIRS + "test_a_key_of_the_wrong_kind_is_set_aside_and_beat_goes_on")),
    Row(54, "a watermark that is no time", ENTRY, "the value; the entry goes on with its next slot",
        ("acceptance/test_suspicious_state.py::test_an_unreadable_state_of_one_entry_leaves_the_others_alone",
         _REPAIRS + "test_a_watermark_that_cannot_be_right_is_shown_and_mended")),
    Row(55, "a watermark in the future", ENTRY, "seconds are another clock; more counts as now",
        (_STATES + "test_a_watermark_a_few_seconds_in_the_future_is_the_clock_of_another_host",
         _STATES + "test_a_watermark_of_another_age_is_said_and_the_entry_goes_on_with_its_next_slot")),
    Row(56, "a watermark of another age", ENTRY, "the value; the entry goes on with its next slot",
        (_STATES + "test_a_watermark_of_another_age_is_said_and_the_entry_goes_on_with_its_next_slot",)),
    Row(57, "a damaged record of a run", ENTRY, "a dead letter, corrupt; the chain goes on",
        (_RECORDS
         + "test_a_waiting_run_whose_record_is_damaged_becomes_a_dead_letter_and_the_chain_goes_on",
         _RECORDS
         + "test_a_sent_run_whose_record_is_damaged_is_executed_by_nobody_and_buried_when_its_time_is_up",
         _RECORDS + "test_a_catch_up_over_a_damaged_record_runs_neither_it_nor_anything_twice")),
    Row(58, "a leader's record of another type", WAIT, "taken over when it does not move",
        (_RECORDS + "test_a_leaders_record_of_another_kind_is_taken_over_when_it_does_not_move",)),
    Row(59, "the fence is deleted", WORKS, "no write under the old one, a higher one next",
        (_RECORDS
         + "test_a_leader_whose_fence_is_deleted_writes_nothing_and_leads_again_with_a_higher_one",)),
    Row(60, "state of a newer version", START, "both versions; looking still works",
        (_AT_START + "test_state_that_this_version_cannot_use_is_refused_and_the_lead_is_free",
         "integration/cli/test_surface.py::test_state_of_a_newer_version_can_be_looked_at")),
    Row(61, "state of an older version", WORKS, "marked under the lease, as often as needed",
        (_STATES + "test_state_without_a_mark_of_its_version_is_marked_by_the_leader_once",)),
    Row(62, "old and new beat together", WAIT, "the old one leaves the lead to others",
        (_AT_START + "test_a_beat_that_meets_newer_state_later_waits_and_leaves_the_lead_to_others",
         "acceptance/test_two_beats.py::test_a_standby_says_once_that_it_stands_by_and_sends_nothing")),
    Row(63, "a gap of 2,628,000 slots", WORKS, "counted in no time and no memory",
        (_STATES + "test_five_years_of_minutes_are_planned_in_no_time_and_no_memory",)),
    Row(64, "the same, all of them", WORKS, "in batches, over ticks",
        (_ENGINE + "test_a_long_catch_up_is_spread_over_ticks_and_starves_nobody",)),
    Row(65, "10,000 entries", WORKS, "in time",
        (_STATES + "test_ten_thousand_entries_start_in_time_and_cost_little_when_nothing_is_due",)),
    Row(66, "all due at once", WORKS, "in batches, the lease renewed in between",
        (_STATES
         + "test_when_all_are_due_at_once_they_are_sent_in_batches_between_which_the_lease_is_renewed",)),
    Row(67, "a run longer than its period", WORKS, "as the overlap policy says",
        (_RUNS + "test_of_three_missed_slots_the_overlap_policy_keeps",
         _RUNS + "test_a_chain_runs_in_order_one_after_another")),
    Row(68, "a run longer than its lease", WORKS, "its worker renews it",
        ("integration/worker_plugin/test_leases.py::test_a_run_longer_than_its_lease_keeps_it",)),
    Row(69, "a worker that is killed", ENTRY, "the next attempt; a dead letter in the end",
        (_RUNS + "test_a_run_that_kills_its_workers_is_given_up_and_the_chain_goes_on",
         "acceptance/test_chain_storm.py::test_a_chain_keeps_its_order_while_workers_are_killed")),
    Row(70, "a worker that wakes past its lease", ENTRY, "its report is superseded",
        ("integration/worker_plugin/test_leases.py::test_a_worker_that_was_stopped_past_its_lease_is_refused",)),
    Row(71, "a message redelivered while it runs", WORKS, "one execution",
        ("acceptance/test_inside_a_run.py::"
         "test_a_message_that_is_delivered_again_while_it_is_executed_is_not_executed_twice",)),
    Row(72, "one message for three workers", WORKS, "one execution",
        ("integration/worker_plugin/test_claims.py::test_three_workers_that_get_one_message_execute_it_once",)),
    Row(73, "a message that is lost", WORKS, "sent again",
        ("integration/engine/test_unclaimed_runs.py::"
         "test_a_message_is_sent_again_when_its_queue_is_empty_and_workers_are_there",)),
    Row(74, "too many dead letters", SAID, "the oldest count as failed",
        (_REPAIRS
         + "test_beyond_the_most_dead_letters_the_oldest_count_as_failed_and_dispatch_goes_on",)),
    Row(75, "a replay of nothing, twice, of a running one", ENTRY, "refused, or done once",
        ("integration/cli/test_dlq.py::test_an_unknown_run_is_refused",
         "integration/cli/test_dlq.py::test_replaying_twice_is_done_once_and_no_error",
         "integration/cli/test_dlq.py::test_what_runs_or_has_succeeded_by_itself_is_refused")),
    Row(76, "the clock of beat is set", WORKS, "nothing early, nothing twice",
        (_STATES + "test_a_clock_that_is_set_while_beat_runs_makes_nothing_early_and_nothing_twice",)),
    Row(77, "the clock of the server is set", WORKS, "no lease depends on it",
        (_STATES + "test_the_servers_clock_has_no_say_in_who_leads",)),
    Row(78, "the host sleeps", WORKS, "like an outage",
        (_ENGINE + "test_a_living_beat_that_was_frozen_catches_up_like_a_restarted_one",)),
    Row(79, "beats of one host and pid", WORKS, "names of their own",
        (_STATES + "test_two_beats_of_one_process_on_one_host_have_names_of_their_own",)),
    Row(80, "beats with different schedules", SAID, "the leader's counts",
        (_REPAIRS + "test_a_standby_with_another_schedule_says_so_once_and_the_leaders_counts",)),
    Row(81, "a beat inside a worker, or forked", WORKS, "nothing",
        (_DROP_IN + "test_a_worker_may_carry_it_inside",
         "acceptance/test_outage.py::test_the_queue_holds_what_the_policy_promises")),
    Row(82, "signals in the midst of a batch", WORKS, "the lease is free, nothing is half done",
        (_DROP_IN + "test_stopping_in_the_midst_of_a_long_catch_up_leaves_nothing_half_done",
         _DROP_IN + "test_a_second_signal_while_it_ends_does_no_harm",
         "acceptance/test_killed_beats.py::"
         "test_a_beat_killed_at_any_of_its_writes_loses_nothing_and_doubles_nothing")),
    Row(83, "no room for the watermark file", SAID, "once; beat runs on",
        ("reliability/test_watermark_file.py::test_a_place_that_cannot_be_written_is_said_once_and_beat_runs_on",
         "reliability/test_watermark_file.py::test_a_full_disk_leaves_the_old_watermark_file_and_no_other")),
    Row(84, "no room for the log, a closed pipe", WORKS, "beat runs on",
        (_PROCESSES + "test_a_log_on_a_full_disk_stops_no_beat",
         _PROCESSES + "test_a_reader_of_its_output_that_goes_away_stops_no_beat")),
    Row(85, "a broker for development", SAID, "what it cannot do",
        (_SAID_ONCE.format("memory"), _SAID_ONCE.format("files"))),
    Row(86, "no result backend", WORKS, "none is needed",
        ("acceptance/test_outage.py::"
         "test_a_worker_executes_the_missed_slots_in_order_and_never_two_at_once",)),
    Row(87, "task_always_eager", SAID, "that nothing is sent",
        (_SAID_ONCE.format("eager"),
         "integration/dispatch/test_atomic.py::test_eager_tasks_are_not_executed_inside_beat")),
    Row(88, "a bare locale, no zones of the system", WORKS, "nothing",
        (_PROCESSES + "test_a_bare_locale_and_no_zones_of_the_system_are_enough",)),
)  # fmt: skip
