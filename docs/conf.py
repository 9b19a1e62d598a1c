"""How Sphinx makes the site of these pages: `python -m sphinx -W --keep-going docs build/site`.

The pages are Markdown that reads well without it. What they can't say in Markdown is in
`site_parts/`: docstrings as they are written here, tables of files, and pictures of releases
that are made while it builds.
"""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from site_parts import docstrings, files, pictures, words

project = "dpsql"
author = "The dpsql authors"
project_copyright = "The dpsql authors, Apache License 2.0"
release = version = version_of("dpsql")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # pages may begin their parts where they like

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = f"dpsql {release}"
html_static_path = ["site_parts/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # browsers don't let pages from a disk read others for it
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
}


def setup(app: Any) -> None:
    """Connect what Sphinx tells of to what has to be done then."""
    app.connect("autodoc-process-docstring", docstrings.as_restructured_text, priority=100)
    app.connect("source-read", pictures.with_contents)
    app.connect("source-read", pictures.with_pictures)
    app.connect("source-read", pictures.with_previews)
    app.connect("source-read", files.with_files)
    app.connect("source-read", words.with_words)
    app.connect("builder-inited", pictures.write_report)
