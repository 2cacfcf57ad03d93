"""Recurrent visual attention: agents that choose where to look, and what trains them."""
