"""Run the beat tests of Celery and django-celery-beat, from their sdists, against our scheduler."""
