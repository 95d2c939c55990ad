"""The Django app ``celery_catchup.django``: a policy for each row of django-celery-beat, in Django's admin.

It may import everything below the edges. Beat does not import it: it reads the policy through the row. Start
reading in `admin.py`; `models.py` has the table, `forms.py` the fields, `entry_panel.py` a row's facts.
"""
