"""The campaigns: trials that a seed plans, of several events each, judged after every step."""
