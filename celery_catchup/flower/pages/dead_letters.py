"""``/catchup/dead``: the runs that have used up their attempts."""

from __future__ import annotations

from celery_catchup.flower.markup import plural
from celery_catchup.flower.pages.elements import FilterLink
from celery_catchup.flower.pages.page import DEAD_LETTERS, Links, Page, Values, parse_word
from celery_catchup.operations import Operator
from celery_catchup.operations.dead_letters import Category, list_dead

ROWS = 200


class DeadLettersPage(Page):
    """The dead letters, latest first, filtered by category and text."""

    template, active, heading = "catchup_dead.html", "dead", "Dead letters"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the dead letters that match the filters."""
        chosen, search = self.query("category"), self.query("search")
        category = parse_word(Category, "category", chosen) if chosen else None
        found = list_dead(operator, category=category, search=search, limit=ROWS)
        more = " (the newest)" if len(found) == ROWS else ""
        return {
            "dead_letters": found,
            "categories": [
                FilterLink(
                    one.capitalize() if one else "All",
                    link(DEAD_LETTERS, category=one, search=search),
                    chosen == one,
                )
                for one in ("", *map(str, Category))
            ],
            "category": chosen,
            "search": search,
            "words": plural(len(found), "dead letter") + more if found else "",
        }
