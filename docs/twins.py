"""Markdown twins of the pages, and ``llms.txt``, for tools that read text: written beside the HTML by Sphinx.

A twin is the page's own source; only Sphinx's tables of contents and the places of pictures differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

CONTENTS = re.compile(r"^```\{toctree\}\n:caption: (.+)\n(?::.+\n)*\n((?:\S+\n)+)```\n", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
PICTURE = re.compile(r"(!\[[^\]]*\]\()[./]*images/")


def sections(source: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the caption and the pages of each table of contents of the index, in order."""
    for match in CONTENTS.finditer((source / "index.md").read_text(encoding="utf-8")):
        yield match[1], match[2].split()


def twin(source: Path, page: str) -> str:
    """Return the Markdown of a page, for readers without Sphinx."""
    text = (source / f"{page}.md").read_text(encoding="utf-8")

    def listed(match: re.Match[str]) -> str:
        links = [f"- [{title(source, name)}]({name}.md)" for name in match[2].split()]
        return "\n".join((f"## {match[1]}", "", *links, ""))

    to_root = "../" * (len(PurePosixPath(page).parts) - 1)
    return PICTURE.sub(rf"\g<1>{to_root}_images/", CONTENTS.sub(listed, text))


def title(source: Path, page: str) -> str:
    """Return the heading of a page."""
    return (source / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def summary(source: Path, page: str) -> str:
    """Return the first sentence of a page."""
    text = FENCED.sub("", (source / f"{page}.md").read_text(encoding="utf-8"))
    paragraphs = (" ".join(part.split()) for part in text.split("\n\n")[1:])
    first = LINK.sub(r"\1", next(part for part in paragraphs if part and part[0] not in "#|-"))
    return re.split(r"(?<=[.?])\s", first)[0]


def llms(source: Path) -> str:
    """Return ``llms.txt``: what the package is, and a link to each page's Markdown with a sentence."""
    parts = [f"# {title(source, 'index')}", f"> {summary(source, 'index')}"]
    for caption, pages in sections(source):
        links = [f"- [{title(source, page)}]({page}.md): {summary(source, page)}" for page in pages]
        parts.append("\n".join((f"## {caption}", "", *links)))
    return "\n\n".join(parts) + "\n"


def write(source: Path, target: Path) -> None:
    """Write the twins of all pages, and ``llms.txt``, into the folder of the HTML."""
    for page in ["index", *(page for _, pages in sections(source) for page in pages)]:
        place = target / f"{page}.md"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(twin(source, page), encoding="utf-8")
    (target / "llms.txt").write_text(llms(source), encoding="utf-8")


def setup(app: Any) -> Mapping[str, Any]:
    """Connect to Sphinx: link each HTML page to its twin, and write the twins after the build."""

    def link(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
        if doctree is not None:
            href = context["pathto"](f"{pagename}.md", resource=True)
            context["metatags"] += f'\n<link rel="alternate" type="text/markdown" href="{href}">'

    def finish(app: Any, exception: Exception | None) -> None:
        if exception is None and app.builder.format == "html":
            write(Path(app.srcdir), Path(app.outdir))

    app.connect("html-page-context", link)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
