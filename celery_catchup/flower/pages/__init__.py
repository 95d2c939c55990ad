"""The pages of the tab: each reads operations and renders a template.

They may import `operations` and what is below, `drawing` and `markup`. Start reading at `page`.
"""

from __future__ import annotations

from typing import Any

from celery_catchup.flower.host import TAB
from celery_catchup.flower.pages.audit import AuditTrailPage
from celery_catchup.flower.pages.backfills import BackfillDetailsPage, BackfillPreviewPage, BackfillsPage
from celery_catchup.flower.pages.dead_letters import DeadLettersPage
from celery_catchup.flower.pages.entry import EntryDetailsPage
from celery_catchup.flower.pages.page import StaticFile
from celery_catchup.flower.pages.run import RunDetailsPage
from celery_catchup.flower.pages.runs import RunsPage
from celery_catchup.flower.pages.schedules import SchedulesPage
from celery_catchup.flower.pages.stored_entries import EntryFormPage, StoredEntriesPage
from celery_catchup.flower.pages.whatif import WhatIfPage

ROUTES: list[tuple[Any, ...]] = [
    (r"/catchup", SchedulesPage, None, TAB),
    (r"/catchup/", SchedulesPage),
    (r"/catchup/entry", EntryDetailsPage),
    (r"/catchup/runs", RunsPage),
    (r"/catchup/run/([^/]+)", RunDetailsPage),
    (r"/catchup/dead", DeadLettersPage),
    (r"/catchup/backfills", BackfillsPage),
    (r"/catchup/backfills/([^/]+)", BackfillDetailsPage),
    (r"/catchup/backfill-preview", BackfillPreviewPage),
    (r"/catchup/entries", StoredEntriesPage),
    (r"/catchup/entries/edit", EntryFormPage),
    (r"/catchup/audit", AuditTrailPage),
    (r"/catchup/whatif", WhatIfPage),
    (r"/catchup/static/([a-z.]+)", StaticFile),
]
