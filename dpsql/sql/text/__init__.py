"""From text to a syntax tree: bounds, scripts, and where each node stands."""
