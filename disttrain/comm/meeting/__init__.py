"""How ranks meet: who am I, who is there, who goes on."""
