"""Presentation: results, replays and catalogues as renderables of rich."""
