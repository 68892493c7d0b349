"""Whole products on top of the core, a room each: routes, types, service, tables."""
