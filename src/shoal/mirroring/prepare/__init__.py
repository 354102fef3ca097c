"""The destination's topics: compared with the source's, created, grown, and their copies looked at."""
