"""Answers: values of statements, their errors, and what is known of both."""
