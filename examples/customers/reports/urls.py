"""The API: customers, as JSON. A real one needs authentication."""

import json
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path

from celery_catchup.errors import ConfigurationError
from reports import schedules
from reports.models import Customer

_FIELDS = ("name", "hour", "timezone")


def customers(request: HttpRequest) -> HttpResponse:
    """Create a customer with POST."""
    if request.method != "POST":
        return HttpResponse(status=HTTPStatus.METHOD_NOT_ALLOWED)
    return _saved(Customer(), request, HTTPStatus.CREATED)


def customer(request: HttpRequest, number: int) -> HttpResponse:
    """Change a customer with PATCH, delete one with DELETE."""
    found = get_object_or_404(Customer, pk=number)
    if request.method == "DELETE":
        schedules.delete(found)
        return HttpResponse(status=HTTPStatus.NO_CONTENT)
    if request.method != "PATCH":
        return HttpResponse(status=HTTPStatus.METHOD_NOT_ALLOWED)
    return _saved(found, request, HTTPStatus.OK)


def _saved(one: Customer, request: HttpRequest, status: HTTPStatus) -> HttpResponse:
    try:
        given: dict[str, Any] = json.loads(request.body)
        for name in _FIELDS:
            setattr(one, name, given.get(name, getattr(one, name)))
        one.hour = int(one.hour)
        schedules.save(one)
    except ConfigurationError as error:
        mistakes = [{"where": each.where, "problem": each.problem} for each in error.mistakes]
        return JsonResponse({"mistakes": mistakes}, status=HTTPStatus.BAD_REQUEST)
    except (ValueError, TypeError, AttributeError):
        return HttpResponse(status=HTTPStatus.BAD_REQUEST)
    return JsonResponse({"id": one.pk, **{name: getattr(one, name) for name in _FIELDS}}, status=status)


urlpatterns = [path("customers", customers), path("customers/<int:number>", customer)]
