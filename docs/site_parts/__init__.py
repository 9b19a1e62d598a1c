"""What the site has beyond its pages."""
