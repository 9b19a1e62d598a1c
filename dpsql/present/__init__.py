"""Answers as they are shown and taken elsewhere: texts, pictures, pages, files."""
