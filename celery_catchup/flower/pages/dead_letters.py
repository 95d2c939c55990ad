"""``/catchup/dead``: runs that have used up their attempts."""

from __future__ import annotations

from celery_catchup.flower.labels import counted
from celery_catchup.flower.links import DEAD, Links
from celery_catchup.flower.pages.asking import word
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.dead_letters import dead_row
from celery_catchup.flower.views.filters import Choice
from celery_catchup.operations import Operator
from celery_catchup.operations.dead_letters import Category, list_dead

ROWS = 200


class DeadLettersPage(Page):
    """Dead letters, those that died last first."""

    template, active, heading = "catchup_dead.html", "dead", "Dead letters"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """All of them, or those of one category, or that have a text."""
        chosen, search = self.asked("category"), self.asked("search")
        category = word(Category, "category", chosen) if chosen else None
        found = list_dead(operator, category=category, search=search, limit=ROWS)
        more = " (the newest)" if len(found) == ROWS else ""
        return {
            "dead": [dead_row(letter) for letter in found],
            "categories": [
                Choice("All", link(DEAD, search=search), not chosen),
                *(
                    Choice(
                        one.value.capitalize(), link(DEAD, category=one.value, search=search), chosen == one
                    )
                    for one in Category
                ),
            ],
            "category": chosen,
            "search": search,
            "words": counted(len(found), "dead letter") + more if found else "",
        }
