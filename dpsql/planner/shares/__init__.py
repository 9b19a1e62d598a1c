"""How the privacy cost is shared among what is measured."""
