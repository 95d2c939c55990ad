"""The project's tasks."""

from celery import shared_task

from celery_catchup import current_run


@shared_task(name="reports.daily")
def daily(customer: int) -> str:
    """Write the report of a customer for the day that ends with the slot."""
    run = current_run()
    day = "today" if run is None else f"{run.scheduled_time:%Y-%m-%d}"
    return f"report of customer {customer} for {day}"
