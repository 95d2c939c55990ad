"""``manage.py sync_reports``: make the entries equal to the customers."""

from django.core.management.base import BaseCommand

from reports import schedules


class Command(BaseCommand):
    """Make the entries equal to the customers, after a restore of the database or of Redis."""

    help = __doc__

    def handle(self, *args: object, **options: object) -> None:
        """Print how many entries changed."""
        self.stdout.write(f"{schedules.sync()} entries changed")
