"""Whatever follows the records to the other cluster: configurations of topics, ACLs."""
