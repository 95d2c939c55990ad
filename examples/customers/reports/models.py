"""The customers."""

from django.db import models


class Customer(models.Model):
    """A customer, and when the daily report runs."""

    name = models.CharField(max_length=100)
    hour = models.IntegerField()
    timezone = models.CharField(max_length=50, default="UTC")
