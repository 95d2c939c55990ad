"""Which of upstream's tests our scheduler does not pass, and why. Every other test passes.

A reason is a private detail of upstream's implementation, or a difference that
docs/explanation/differences-from-celery-beat.md describes.
"""

from __future__ import annotations

SHELF = "reads or patches the shelf file; our state is in Redis"
HEAP = "reads or sets the private heap of Celery's scheduler, its error logger, or the exact wait"
REPR = "expects the class name ScheduleEntry in repr()"
FROM_5_7 = {"test_Scheduler::test_schedule_no_remain"}
"""Differences that the tests of Celery 5.5 and 5.6 do not show: they expect another wait."""
CLOCK = (
    "moves the entry's own clock between ticks; ours waits for as long as is_due() said, by the real clock"
)

CELERY = {
    REPR: ["test_ScheduleEntry::test_repr"],
    HEAP: [
        "test_Scheduler::test_due_tick_returns_delay_when_heap_top_changed",
        "test_Scheduler::test_not_due_top_entry_is_rescheduled_behind_due_entry",
        "test_Scheduler::test_reheap_skipped_when_is_due_mutates_heap",
        "test_Scheduler::test_schedule_no_remain",
        "test_Scheduler::test_tick_daily_relative_spring_forward",
        "test_Scheduler::test_tick_survives_entry_failing_in_populate_heap",
        "test_Scheduler::test_tick_survives_entry_failing_when_due",
        "test_Scheduler::test_tick_uses_fresh_time_when_heap_top_changes[False]",
        "test_Scheduler::test_tick_uses_fresh_time_when_heap_top_changes[True]",
        "test_Scheduler::test_ticks_microseconds",
        "test_Scheduler::test_ticks_schedule_change",
    ],
    CLOCK: [
        "test_Scheduler::test_tick_solar_across_dst[fall-back]",
        "test_Scheduler::test_tick_solar_across_dst[spring-forward]",
    ],
    SHELF: [
        "test_PersistentScheduler::test_create_schedule_corrupted",
        "test_PersistentScheduler::test_create_schedule_corrupted_dbm_error",
        "test_PersistentScheduler::test_create_schedule_corrupted_pickle_error",
        "test_PersistentScheduler::test_create_schedule_invalid_stored_crontab",
        "test_PersistentScheduler::test_create_schedule_missing_entries",
        "test_PersistentScheduler::test_create_schedule_missing_entries_not_logged",
        "test_PersistentScheduler::test_get_schedule",
        "test_PersistentScheduler::test_remove_db",
        "test_PersistentScheduler::test_run_all_due_tasks_after_restart",
        "test_PersistentScheduler::test_setup_schedule",
        "test_SchedulerShutdown::test_close_ignores_broker_errors[PersistentScheduler-channel_errors]",
        "test_SchedulerShutdown::test_close_ignores_broker_errors[PersistentScheduler-connection_errors]",
        "test_SchedulerShutdown::test_close_prioritizes_sync_over_unexpected_release_error[PersistentScheduler-False]",
        "test_SchedulerShutdown::test_close_prioritizes_sync_over_unexpected_release_error[PersistentScheduler-True]",
        "test_SchedulerShutdown::test_close_releases_connection_and_channel[PersistentScheduler]",
        "test_SchedulerShutdown::test_close_releases_resources_when_sync_fails[PersistentScheduler]",
        "test_SchedulerShutdown::test_persistent_close_before_schedule_setup[False]",
        "test_SchedulerShutdown::test_persistent_close_before_schedule_setup[True]",
        "test_SchedulerShutdown::test_persistent_close_releases_connection_when_store_close_fails[False]",
        "test_SchedulerShutdown::test_persistent_close_releases_connection_when_store_close_fails[True]",
        "test_SchedulerShutdown::test_persistent_close_twice_with_real_shelf",
        "test_Service::test_start",
    ],
}

UNSAVED = "expects the entry to save its row; ours writes last_run_at and the count of all rows together"
PRIVATE = "calls or reads a private part of DatabaseScheduler"
CLEANUP = (
    "expects celery.backend_cleanup although the result backend expires results itself; "
    "we follow Celery, which leaves it out"
)
ROWS_FROM_SETTINGS = "expects entries of beat_schedule to be written to the tables; ours stay in the settings"
EXCLUDED = "expects rows that are not due soon to be left out of the schedule; ours has all enabled rows"
RE_READ = "expects the next use of .schedule to re-read the tables; we look every 5 seconds, in a tick"
NEVER = "expects the exact delay that stands for never, or that is rounded up to seconds"
ONE_OFF = "expects a row with runs that is made one-off never to run; ours runs it once more"
ASKED_AGAIN = "expects the delay until the first slot after start_time; ours is asked again at start_time"

DJANGO_CELERY_BEAT = {
    UNSAVED: [
        "test_ModelEntry::test_entry",
        "test_ModelEntry::test_entry_and_model_last_run_at_when_model_changed",
        "test_ModelEntry::test_entry_and_model_last_run_at_with_utc_no_use_tz",
        "test_DatabaseScheduler::test_reserve",
        "test_DatabaseScheduler::test_sync_not_saves_last_run_at_while_schedule_changed",
        "test_DatabaseScheduler::test_sync_saves_last_run_at",
        "test_DatabaseScheduler::test_sync_syncs_before_save",
        "test_DatabaseScheduler::test_periodic_task_disabled_and_enabled",
        "test_DatabaseScheduler::test_periodic_task_disabled_while_reserved",
    ],
    NEVER: [
        "test_ModelEntry::test_task_with_expires",
        "test_ModelEntry::test_task_with_start_time",
    ],
    ONE_OFF: ["test_ModelEntry::test_one_off_task"],
    ASKED_AGAIN: [
        "test_DatabaseScheduler::test_crontab_with_start_time_after_crontab",
        "test_DatabaseScheduler::test_crontab_with_start_time_between_now_and_crontab",
        "test_DatabaseScheduler::test_crontab_with_start_time_different_time_zone",
    ],
    CLEANUP: [
        "test_DatabaseSchedulerFromAppConf::test_periodic_task_model_disabled_schedule",
        "test_DatabaseSchedulerFromAppConf::test_periodic_task_model_enabled_schedule",
    ],
    ROWS_FROM_SETTINGS: [
        "test_DatabaseSchedulerFromAppConf::test_periodic_task_model_schedule_type_change",
    ],
    EXCLUDED: ["test_DatabaseScheduler::test_all_as_schedule"],
    RE_READ: ["test_DatabaseScheduler::test_schedule_changed"],
    PRIVATE: [
        "test_DatabaseSchedulerFromAppConf::test_constructor",
        "test_DatabaseScheduler::test_constructor",
        "test_DatabaseScheduler::test_crontab_exclusion_logic_basic",
        "test_DatabaseScheduler::test_crontab_special_hour_four",
        "test_DatabaseScheduler::test_crontab_timezone_conversion",
        "test_DatabaseScheduler::test_crontab_timezone_conversion_with_negative_offset_and_dst",
        "test_DatabaseScheduler::test_crontab_with_start_time_tick",
        "test_DatabaseScheduler::test_heap_always_return_the_first_item",
        "test_DatabaseScheduler::test_heap_size_is_constant",
        "test_DatabaseScheduler::test_scheduler_schedules_equality_on_change",
        "test_DatabaseScheduler::test_scheduler_valid_hours",
        "test_DatabaseScheduler::test_starttime_trigger",
        "test_DatabaseScheduler::test_sync_not_dirty",
        "test_DatabaseScheduler::test_sync_object_gone",
        "test_DatabaseScheduler::test_sync_rollback_on_save_error",
        "test_DatabaseScheduler::test_update_scheduler_heap_invalidation",
        "test_timezone_offset_handling::test_server_timezone_handling_with_zoneinfo",
        "test_timezone_offset_handling::test_timezone_offset_with_zoneinfo_object_param",
    ],
}
