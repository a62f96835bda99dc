"""What clients and git call at their events; standard library only until there is work."""
