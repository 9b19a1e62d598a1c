"""`%load_ext dpsql`: cells of SQL in IPython and Jupyter."""

from dpsql.notebook.magics import load_ipython_extension, unload_ipython_extension

__all__ = ["load_ipython_extension", "unload_ipython_extension"]
