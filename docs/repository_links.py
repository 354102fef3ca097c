"""
Let the site show the repository's documents outside docs/, and follow links as GitHub does.

A hook of MkDocs (mkdocs.yml). Links in the documents are relative to their file, so that they work on GitHub.
README.md and its like become pages of the site. A link to code becomes plain text unless ``repo_url`` is set.
A link to a file that does not exist is a warning, which ends a strict build.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

#: Documents outside docs/, and their pages.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASING.md": "releasing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "broker/README.md": "embedded-broker.md",
    "agent/README.md": "agent.md",
}

_LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)#:\s]*)(?P<anchor>#[^)\s]*)?\)")
#: The line with GitHub's own pictures, which are nowhere else.
_BADGES = re.compile(r"^\[!\[.*\n", re.MULTILINE)
_CODE = re.compile(r"^( *```.*?^ *```)", re.DOTALL | re.MULTILINE)
#: A role of reStructuredText, as docstrings have them: ``:meth:`poll` ``.
_ROLE = re.compile(r":(?:attr|class|func|meth|mod):<code>[~.]*([^<]*)</code>")

_log = logging.getLogger("mkdocs.hooks.repository_links")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside docs/."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links between files of the repository into links between pages of the site."""
    paths = {uri: path for path, uri in PAGES.items()}
    here = paths.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def follow(link: re.Match[str]) -> str:
        text, target, anchor = link["text"], link["target"], link["anchor"] or ""
        if not target:
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        if not (ROOT / path).exists():
            _log.warning("%s has a link to %s, which does not exist", here, path)
        uri = PAGES.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(uri):
            return f"{text}({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        if config.repo_url:
            return f"{text}({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})"
        return text.strip("![]")

    pieces = _CODE.split(_BADGES.sub("", markdown))
    return "".join(piece if _CODE.match(piece) else _LINK.sub(follow, piece) for piece in pieces)


def on_page_content(html: str, **_: object) -> str:
    """Take the roles of docstrings for what they mark: code."""
    return _ROLE.sub(r"<code>\1</code>", html)
