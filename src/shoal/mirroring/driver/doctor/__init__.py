"""``shoal doctor``: both clusters, the mirror's topics and ACLs, and this machine, looked at one by one."""
