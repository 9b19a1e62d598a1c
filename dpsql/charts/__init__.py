"""Pictures by Vega-Lite: what they are like, and how they are drawn, for pages and for plots."""
