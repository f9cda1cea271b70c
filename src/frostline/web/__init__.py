"""Web servers of pages and services: addresses, admission, limits, and a clean end."""
