"""The operations: everything an operator can read and change, by command, HTTP API or page.

Each operation takes an `Operator`, which opens an app's configuration and store; prints nothing; and returns
values that `as_json` serialises. May import everything below the edges (command line, Flower). Start reading
in `operator.py`, then the operation you are interested in; the doctor has a folder of its own.
"""

from celery_catchup.operations.json_form import as_json
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError, UnknownEntryError, UnknownRunError

__all__ = ["Operator", "RefusedError", "UnknownEntryError", "UnknownRunError", "as_json"]
