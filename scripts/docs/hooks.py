"""Hooks of MkDocs (``hooks`` in ``mkdocs.yml``).

Pages link to code as they would on a code host: ``[core.session](../src/tocsin/core/session/__init__.py)``. On the
site such a link leads to a page with that file's text, made here; a link to a file that is not there fails the build.
The page of a package's ``__init__`` lists its modules, with the first line of each.
The README, CONTRIBUTING and CHANGELOG at the root of the repository become pages too; the README is the home page.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)(#[^)\s]*)?\)")
ROW = re.compile(r"^\|.*$", re.MULTILINE)
THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")  # between the digits of 12 345
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".sql": "sql"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages, and a page for each file of code that some page links to."""
    sources = {
        page: Path(config.docs_dir, page)
        for page in sorted(each.src_uri for each in files.documentation_pages())
    }
    for name, page in ROOT_PAGES.items():
        sources[page] = ROOT / name
        files.append(File.generated(config, page, content=_root_page(sources[page].read_text("utf-8"))))
    linked: set[str] = set()
    for page, source in sources.items():
        text = (
            _root_page(source.read_text("utf-8"))
            if page in ROOT_PAGES.values()
            else source.read_text("utf-8")
        )
        linked.update(path for _, link, _ in LINK.findall(text) if (path := _code(page, link)))
    for path in sorted(linked.union(*map(_inside, linked))):
        file = File.generated(config, f"source/{path}.md", content=_code_page(path))
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links to code to their pages, and keep the numbers of tables on one line."""

    def lead(match: re.Match[str]) -> str:
        path = _code(page.file.src_uri, match[2])
        if path is None:
            return match[0]
        target = posixpath.relpath(f"source/{path}.md", posixpath.dirname(page.file.src_uri) or ".")
        return f"{match[1]}{target})"

    if page.file.src_uri.startswith("source/"):
        return markdown
    return LINK.sub(lead, ROW.sub(lambda row: THOUSANDS.sub("\u00a0", row[0]), markdown))


def _root_page(text: str) -> str:
    """A page of the root, as it reads inside ``docs``: its links lose ``docs/``, or climb one level."""

    def move(match: re.Match[str]) -> str:
        link, anchor = match[2], match[3] or ""
        if "://" in link:
            return match[0]
        if link in ROOT_PAGES:
            link = ROOT_PAGES[link]
        else:
            link = link.removeprefix("docs/") if link.startswith("docs/") else f"../{link}"
        return f"{match[1]}{link}{anchor})"

    text = re.sub(r'((?:src|srcset)=")docs/', r"\1", text)
    return LINK.sub(move, text)


def _code(page: str, link: str) -> str | None:
    """The path from the root of the repository that a page's link means, if it leaves ``docs``."""
    if "://" in link or not link.startswith("../"):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    if path.startswith(("docs/", "../")):
        return None
    if path in ROOT_PAGES:
        return None
    if not (ROOT / path).is_file():
        raise PluginError(f"{page} links to {link}: there is no file {path}")
    return path


def _inside(path: str) -> Iterator[str]:
    """The modules and packages of a package, named by its ``__init__``; and what is in them."""
    if posixpath.basename(path) != "__init__.py":
        return
    for inner in sorted((ROOT / path).parent.iterdir()):
        if inner.suffix == ".py" and inner.name != "__init__.py":
            yield inner.relative_to(ROOT).as_posix()
        elif (inner / "__init__.py").is_file():
            package = (inner / "__init__.py").relative_to(ROOT).as_posix()
            yield package
            yield from _inside(package)


def _code_page(path: str) -> str:
    text = (ROOT / path).read_text("utf-8")
    fence = "`" * 4
    language = LANGUAGES.get(Path(path).suffix, "text")
    head = "---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n"
    return f"{head}# `{path}`\n\n{fence}{language}\n{text}\n{fence}\n\n{_contents(path)}"


def _contents(path: str) -> str:
    """A table of a package's own modules."""
    here = posixpath.dirname(path)
    rows = [
        f"| [`{_name(inner, here)}`]({posixpath.relpath(inner, here)}.md) | {_first_line(inner)} |"
        for inner in _inside(path)
        if _name(inner, here).count("/") == 0
    ]
    return "\n".join(["| module | |", "| --- | --- |", *rows, ""]) if rows else ""


def _name(path: str, here: str) -> str:
    return posixpath.relpath(path, here).removesuffix("/__init__.py").removesuffix(".py")


def _first_line(path: str) -> str:
    documentation = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    first = documentation.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return re.sub(r"``(.+?)``", r"`\1`", first)
