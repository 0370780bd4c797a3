"""How Sphinx builds the pages: `python3 run.py docs`."""

import timebounds

project = "timebounds"
copyright = "timebounds contributors"
author = "timebounds contributors"
release = version = timebounds.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "timebounds"
# No page may depend on another machine.
html_show_sphinx = False

myst_heading_anchors = 3

# Docstrings are written with single backticks, to be read in an editor.
default_role = "literal"
# b"" must stay b"".
smartquotes = False
autodoc_member_order = "bysource"
# Clients that parts are made for; they are not here.
autodoc_mock_imports = ["httpcore", "httpx", "requests", "urllib3"]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
