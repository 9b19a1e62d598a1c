"""One file for each command; they print, and leave the work to the package."""
