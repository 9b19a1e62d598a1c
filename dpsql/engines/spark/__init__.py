"""Counts by Apache Spark: `pip install 'dpsql[spark]'`."""
