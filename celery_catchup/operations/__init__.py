"""Operations: what can be looked at and changed, for the command line and the HTTP API alike.

Each takes a `Operator`, an app opened for whoever operates it, prints nothing, and returns values
that `as_json` brings into the one form in which they leave the package.
"""

from celery_catchup.operations.json_form import as_json
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError, UnknownEntryError, UnknownRunError

__all__ = ["Operator", "RefusedError", "UnknownEntryError", "UnknownRunError", "as_json"]
