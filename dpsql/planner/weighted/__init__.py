"""Weighted residuals: the search for the best references."""
