"""The walk back over the graph: who asks for it, how nodes are called, where gradients end."""
