# SPDX-License-Identifier: Apache-2.0
"""Sphinx builds the documentation from here; warnings are errors, and the examples are run: `make docs`."""

import shmbroker

project = "shmbroker"
author = "the shmbroker authors"
copyright = author  # noqa: A001 - the name is Sphinx's
release = version = shmbroker.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["build", "images"]

autodoc_mock_imports = ["pyarrow"]  # nothing of it is run here
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Each page that runs examples makes a broker of its own name, and purges it in its cleanup.
doctest_test_doctest_blocks = ""
doctest_global_setup = "import queue, shmbroker"

html_theme = "furo"
html_title = f"shmbroker {release}"
html_show_sphinx = False
