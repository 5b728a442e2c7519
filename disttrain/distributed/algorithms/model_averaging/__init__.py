"""Averages of models between steps that ranks make by themselves."""
