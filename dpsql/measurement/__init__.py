"""The trusted core: integer strategies, their exact cost, exact noise, and measuring."""
