"""Percentiles that are written with windows over all rows, as the quantiles that they are."""
