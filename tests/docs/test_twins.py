"""Each page has a Markdown twin that needs no Sphinx, and ``llms.txt`` leads to all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import twins

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).with_suffix("").as_posix()
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    twins.write(DOCS, folder)
    return folder


def test_every_page_has_a_twin(site: Path) -> None:
    written = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.md")}

    assert sorted(written) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_twin_is_plain_markdown_whose_links_lead_to_twins(site: Path, page: str) -> None:
    text = twins.FENCED.sub("", (site / f"{page}.md").read_text(encoding="utf-8"))

    assert "{toctree}" not in text
    for target in re.findall(r"\]\(([^)#\s]+\.md)", text):
        assert (site / page).parent.joinpath(target).exists() or re.match(r"[a-z]+:", target), target
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        place = (site / page).parent.joinpath(picture).resolve()
        assert place.parent == (site / "_images").resolve()
        assert (DOCS / "images" / place.name).exists()


def test_llms_txt_names_every_page_once_in_the_order_of_the_index(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    named = re.findall(r"^- \[.+?\]\((\S+)\.md\): \S.*[.?]$", text, re.MULTILINE)

    assert text.startswith("# celery-catchup\n\n> A scheduler for Celery beat")
    assert named == [page for _, pages in twins.sections(DOCS) for page in pages]
    assert sorted([*named, "index"]) == PAGES
