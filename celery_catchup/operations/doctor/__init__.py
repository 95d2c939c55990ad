"""The doctor: what is wrong or risky with this installation, and the fix for each.

Every check is a function that yields findings; one that cannot be made says so and stops nobody.
"""

from celery_catchup.operations.doctor.examination import examine
from celery_catchup.operations.doctor.findings import Examination, Finding, Verdict
from celery_catchup.operations.doctor.repairs import Repair, repairs

__all__ = ["Examination", "Finding", "Repair", "Verdict", "examine", "repairs"]
