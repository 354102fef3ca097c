"""Whatever follows the records to the other cluster: consumer groups, configurations of topics, ACLs."""
