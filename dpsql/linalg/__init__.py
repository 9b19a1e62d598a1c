"""Linear algebra that knows nothing of privacy, SQL or plans."""
