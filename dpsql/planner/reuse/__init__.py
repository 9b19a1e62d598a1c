"""Planning on measurements of earlier releases."""
