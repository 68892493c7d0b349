"""Questions over a salon's calls and bookings."""
