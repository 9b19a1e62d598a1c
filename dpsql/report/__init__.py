"""One self-contained page about a release, as HTML: what it has, and how that is written."""
