"""Jobs on several machines: the keeper, which does all that has to do with the network."""
