"""The doctor: checks of an installation, each with a fix.

Imports other operations. Start reading in `examination.py`: the table of checks is at its end. A check is a
function that yields verdict, detail and fix; one that fails is reported as unknown.
"""

from celery_catchup.operations.doctor.examination import examine
from celery_catchup.operations.doctor.findings import Examination, Finding, Verdict
from celery_catchup.operations.doctor.repairs import Repair, repairs

__all__ = ["Examination", "Finding", "Repair", "Verdict", "examine", "repairs"]
