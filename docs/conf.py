"""How Sphinx builds these pages: `sphinx-build --fail-on-warning --keep-going --nitpicky docs build/docs`.

Nothing is fetched while they are built or read: the theme brings its own scripts, and uses the reader's own fonts.
"""

from __future__ import annotations

import re
from pathlib import Path

_PACKAGE = (Path(__file__).parents[1] / "ospbridge" / "__init__.py").read_text("utf-8")
_VERSION = re.search(r'^__version__ = "(.+)"$', _PACKAGE, re.MULTILINE)
assert _VERSION is not None

project = "ospbridge"
author = "The ospbridge developers"
copyright = author  # noqa: A001  # Sphinx's name
release = version = _VERSION[1]

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3  # links to headings as code hosts write them

html_theme = "furo"
html_title = f"ospbridge {release}"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"light_css_variables": {"content-padding": "2em"}}
